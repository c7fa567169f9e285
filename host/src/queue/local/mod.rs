//! The embedded queue: one SQLite file. The only place that names SQLite; knows no other backend.
