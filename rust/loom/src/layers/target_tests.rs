//! Rules for targets against plain transcriptions.
