"""`client.chat`: requests, tools, structured output and streamed answers."""
