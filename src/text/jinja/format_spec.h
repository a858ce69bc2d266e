// Format specifications of str.format() ("{:>8.2f}") and the layout of numbers that they share with
// printf-style formatting.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/render.h"

namespace deltad::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > = ^
  char sign = '-';
  bool alternate = false;  // #
  bool zero = false;
  int width = 0;
  char grouping = 0;   // , or _
  int precision = -1;  // -1: none
  char type = 0;
};

FormatSpec parse_format_spec(Render& render, std::string_view spec);

// format(value, spec) of str.format(): fails for types that take no specification.
std::string format_value(Render& render, const Value& value, std::string_view spec);

// The digits of |d| in format e, f, g (or upper case), without sign; precision < 0 means 6.
std::string float_digits(Render& render, double d, char type, int precision, bool alternate);

// Pads text of this many code points to the spec's width. prefix (sign, 0x) goes before the
// padding if that is of zeros.
std::string padded(Render& render, const FormatSpec& spec, std::string_view prefix,
                   std::string_view body, char default_align);

}  // namespace deltad::jinja
