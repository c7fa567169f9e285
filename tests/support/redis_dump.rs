//! What a Redis holds, as lines of commands that people can read and `redis-cli < FILE` runs. Knows
//! texts, no bytes that are none.

use crate::redis::{Plain, RedisReply, RedisServer};

/// A command for each field, member or value, sorted by key; then how long a key still lives.
pub fn dump(server: &RedisServer) -> String {
    let mut plain = server.connect();
    let mut keys = texts(&mut plain, &["KEYS", "*"]);
    keys.sort();
    keys.iter().map(|key| of_key(&mut plain, key)).collect()
}

/// Runs such lines.
///
/// # Panics
/// Where a line is not of that form, or the server refuses it.
pub fn load(server: &RedisServer, lines: &str) {
    let mut plain = server.connect();
    for line in lines.lines() {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = plain.call(&words).expect("an answer");
        assert!(
            !matches!(answer, RedisReply::Error(_)),
            "{line}: {answer:?}"
        );
    }
}

fn texts(plain: &mut Plain, words: &[&str]) -> Vec<String> {
    plain.call(words).expect("an answer").texts()
}

/// The lines of one key. What has no order of its own is sorted.
fn of_key(plain: &mut Plain, key: &str) -> String {
    let kind = texts(plain, &["TYPE", key]).concat();
    let (command, read, width): (_, &[&str], _) = match kind.as_str() {
        "string" => ("SET", &["GET", key], 1),
        "set" => ("SADD", &["SMEMBERS", key], 1),
        "list" => ("RPUSH", &["LRANGE", key, "0", "-1"], 1),
        "hash" => ("HSET", &["HGETALL", key], 2),
        "zset" => ("ZADD", &["ZRANGE", key, "0", "-1", "WITHSCORES"], 2),
        // It has expired since it was listed.
        "none" => return String::new(),
        other => panic!("{key} is a {other}"),
    };
    let values = texts(plain, read);
    let mut entries: Vec<Vec<String>> = values.chunks(width).map(<[String]>::to_vec).collect();
    match kind.as_str() {
        // The score comes first.
        "zset" => entries.iter_mut().for_each(|entry| entry.reverse()),
        "list" => {}
        _ => entries.sort(),
    }
    let line = |entry: &Vec<String>| {
        let words: Vec<String> = entry.iter().map(|word| quoted(word)).collect();
        format!("{command} {} {}\n", quoted(key), words.join(" "))
    };
    let mut lines: String = entries.iter().map(line).collect();
    let left = plain.call(&["PTTL", key]).expect("an answer").number();
    if left > 0 {
        lines += &format!("PEXPIRE {} {left}\n", quoted(key));
    }
    lines
}

/// As `redis-cli` reads a word: in double quotes, with a backslash before those and before itself.
fn quoted(word: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "-_.:{}".contains(one);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    assert!(!word.contains(char::is_control), "{word:?} is no line");
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), line.chars().peekable());
    while let Some(first) = rest.next() {
        let mut word = String::new();
        if first == '"' {
            while let Some(next) = rest.next().filter(|next| *next != '"') {
                word.extend(if next == '\\' {
                    rest.next()
                } else {
                    Some(next)
                });
            }
        } else if first != ' ' {
            word.push(first);
            word.extend(std::iter::from_fn(|| rest.next_if(|next| *next != ' ')));
        } else {
            continue;
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let all = ["{a:b}:c", "", "a b", "{\"a\":\"\\n\"}", "=g"];
        let line = all.map(quoted).join(" ");
        assert_eq!(line, r#"{a:b}:c "" "a b" "{\"a\":\"\\n\"}" "=g""#);
        assert_eq!(words(&line), all);
    }
}
