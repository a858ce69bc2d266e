// Numbers as text, as Python reads and writes them: int(), float(), repr(), round().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace deltad::jinja {

std::string int_text(Int i);
// In base 2, 8, 10 or 16, lower case, without prefix; negative with a minus.
std::string int_text(Int i, int base);
// The shortest text that reads back as the same number: 1.0, 1e+16, 1e-05, inf, nan.
std::string float_text(double d);

// int(text, base): with space around, sign, underscores and, where the base allows, a prefix. None
// if it is not such a number. Fails if it does not fit.
std::optional<Int> parse_int(std::string_view text, int base);
// float(text), with inf, infinity and nan.
std::optional<double> parse_float(std::string_view text);
// int(double); fails if it is not finite or does not fit.
Int float_to_int(double d);

double round_float(double d, int digits);  // half to even, on the exact value
Int round_int(Int i, int digits);          // digits < 0: to tens, hundreds, …

// Arithmetic that fails rather than overflow.
Int add(Int a, Int b);
Int subtract(Int a, Int b);
Int multiply(Int a, Int b);

}  // namespace deltad::jinja
