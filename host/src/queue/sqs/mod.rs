//! Amazon SQS. The only place that names its SDK; knows no other backend.
