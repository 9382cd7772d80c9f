"""`kdist assess`: the course's assessment, judged by what a script did."""
