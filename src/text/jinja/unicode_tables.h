// Tables of Unicode 14 that utf8proc does not offer; see unicode_tables.cc.
#pragma once

#include <cstddef>

namespace deltad::jinja {

// A character whose upper or title case is more than one character, or not utf8proc's.
struct SpecialCase {
  char32_t code;
  const char* upper;
  const char* title;
};
extern const SpecialCase kSpecialCases[];  // by code
extern const size_t kSpecialCaseCount;

// The zero of every set of ten decimal digits, ascending.
extern const char32_t kDecimalZeros[];
extern const size_t kDecimalZeroCount;

struct CodeRange {
  char32_t first, last;
};
extern const CodeRange kDigits[];  // digits that are not decimal, as ²
extern const size_t kDigitCount;
extern const CodeRange kNumerics[];  // numerals that are not decimal, as ½ and 三
extern const size_t kNumericCount;

}  // namespace deltad::jinja
