"""The database: engine, tables, migrations, and the queries that several nouns need (the project's lock, pools, the
consensus of labels, what a job's status is).

From outside use these modules; a query that only one noun needs lies with that noun.
"""
