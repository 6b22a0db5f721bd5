"""The pages over HTTP: routes, what each answers, and what stands in the head of every answer."""
