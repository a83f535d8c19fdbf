"""Table of the cases of failure attribution."""

TABLES = ("CREATE TABLE IF NOT EXISTS cases (number INTEGER PRIMARY KEY, body BLOB, crc INTEGER) STRICT",)
PUT = "INSERT INTO cases VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body, crc = excluded.crc"
FORGET = "DELETE FROM cases WHERE number = ?"
