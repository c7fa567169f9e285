// A recursive descent over the text; see json.h.
#include "json.h"

#include <string.h>

// Deeper texts are refused: the stack has an end.
enum { DEEPEST = 128 };

typedef struct {
  const char *at;
  const char *end;
} cursor_t;

static void skip_space(cursor_t *c) {
  while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
}

static bool take(cursor_t *c, char wanted) {
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

static bool is_digit(const cursor_t *c) { return c->at < c->end && *c->at >= '0' && *c->at <= '9'; }

static bool skip_digits(cursor_t *c) {
  if (!is_digit(c)) return false;
  while (is_digit(c)) c->at++;
  return true;
}

static bool skip_number(cursor_t *c) {
  take(c, '-');
  if (!take(c, '0') && !skip_digits(c)) return false;
  if (take(c, '.') && !skip_digits(c)) return false;
  if (take(c, 'e') || take(c, 'E')) {
    if (!take(c, '+')) take(c, '-');
    return skip_digits(c);
  }
  return true;
}

static bool skip_escape(cursor_t *c) {
  if (c->at == c->end) return false;
  char kind = *c->at++;
  if (kind != 'u') return kind && strchr("\"\\/bfnrt", kind);
  for (int digits = 0; digits < 4; digits++, c->at++) {
    if (c->at == c->end || !*c->at || !strchr("0123456789abcdefABCDEF", *c->at)) return false;
  }
  return true;
}

static bool skip_string(cursor_t *c) {
  if (!take(c, '"')) return false;
  while (c->at < c->end) {
    unsigned char letter = (unsigned char)*c->at++;
    if (letter == '"') return true;
    if (letter < 0x20 || (letter == '\\' && !skip_escape(c))) return false;
  }
  return false;
}

static bool skip_word(cursor_t *c, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length)) return false;
  c->at += length;
  return true;
}

static bool skip_value(cursor_t *c, int depth);

// What an object's member or a list's element is preceded by, and the value itself.
static bool skip_entry(cursor_t *c, bool is_object, int depth) {
  skip_space(c);
  if (is_object) {
    if (!skip_string(c)) return false;
    skip_space(c);
    if (!take(c, ':')) return false;
  }
  if (!skip_value(c, depth)) return false;
  skip_space(c);
  return true;
}

static bool skip_entries(cursor_t *c, bool is_object, int depth) {
  char close = is_object ? '}' : ']';
  skip_space(c);
  if (take(c, close)) return true;
  do {
    if (!skip_entry(c, is_object, depth)) return false;
  } while (take(c, ','));
  return take(c, close);
}

static bool skip_value(cursor_t *c, int depth) {
  skip_space(c);
  if (c->at == c->end || depth > DEEPEST) return false;
  switch (*c->at) {
    case '{':
    case '[': {
      bool is_object = *c->at++ == '{';
      return skip_entries(c, is_object, depth + 1);
    }
    case '"': return skip_string(c);
    case 't': return skip_word(c, "true");
    case 'f': return skip_word(c, "false");
    case 'n': return skip_word(c, "null");
    default: return skip_number(c);
  }
}

bool json_parse(const char *text, size_t length, json_t *value) {
  cursor_t c = {text, text + length};
  skip_space(&c);
  const char *start = c.at;
  if (!skip_value(&c, 0)) return false;
  *value = (json_t){start, (size_t)(c.at - start)};
  skip_space(&c);
  return c.at == c.end;
}

json_t json_member(json_t value, const char *name) {
  json_t found = {NULL, 0};
  cursor_t c = {value.at, value.at + value.length};
  if (!value.at || !take(&c, '{')) return found;
  size_t length = strlen(name);
  for (;;) {
    skip_space(&c);
    const char *key = c.at + 1;
    if (!skip_string(&c)) return found;
    bool is_it = (size_t)(c.at - 1 - key) == length && !memcmp(key, name, length);
    skip_space(&c);
    take(&c, ':');
    skip_space(&c);
    const char *start = c.at;
    skip_value(&c, 0);
    if (is_it) found = (json_t){start, (size_t)(c.at - start)};
    skip_space(&c);
    if (!take(&c, ',')) return found;
  }
}

bool json_is(json_t value, const char *word) {
  return value.at && value.length == strlen(word) && !memcmp(value.at, word, value.length);
}

bool json_string(json_t value, json_t *inside) {
  if (!value.at || *value.at != '"') return false;
  *inside = (json_t){value.at + 1, value.length - 2};
  return true;
}

bool json_whole(json_t value, uint64_t *number) {
  if (!value.at) return false;
  *number = 0;
  for (size_t i = 0; i < value.length; i++) {
    unsigned digit = (unsigned char)value.at[i] - '0';
    if (digit > 9 || *number > (UINT64_MAX - digit) / 10) return false;
    *number = *number * 10 + digit;
  }
  return true;
}
