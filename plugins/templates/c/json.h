// Reads JSON where it lies: a value is a part of the text. Allocates nothing; knows nothing of
// messages.
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One value as it stands in its text; without `at` there is none.
typedef struct {
  const char *at;
  size_t length;
} json_t;

// Whether the text is one JSON value and nothing else; if so, `value` is it.
bool json_parse(const char *text, size_t length, json_t *value);

// The last member of this name, if the value is an object that has one. The name must need no
// escapes.
json_t json_member(json_t value, const char *name);

// Whether there is a value and it is this word: `true`, `false` or `null`.
bool json_is(json_t value, const char *word);

// Whether it is a string; if so, `inside` is what stands between the quotes, escapes as they are.
bool json_string(json_t value, json_t *inside);

// Whether it is a whole number from 0 to 2^64 - 1, written without point and exponent.
bool json_whole(json_t value, uint64_t *number);

#endif
