"""What draws plans, jobs and hosts: text and colour for a terminal, plain text elsewhere. It decides nothing."""
