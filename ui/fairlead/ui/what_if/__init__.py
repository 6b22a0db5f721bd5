"""What a change of a cluster would do: what `fairlead what-if` and the page of that name share. Writes nothing.

`question` is what was asked, `world` what is read for it, `answer` computes, `written` words it and makes its JSON. `child` is a process
that does all of it for the page, apart from the server.
"""
