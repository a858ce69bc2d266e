// Arithmetic and subscripts of values, as Python's operators; every result is bounded.
#pragma once

#include <optional>

#include "text/jinja/render.h"

namespace deltad::jinja {

enum class Op { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

Value binary(Render& render, Op op, const Value& a, const Value& b);
Value negate(Render& render, const Value& v);
Value plus(Render& render, const Value& v);

// v[start:stop:step]; None where a part is left out.
Value slice(Render& render, const Value& v, const Value& start, const Value& stop,
            const Value& step);

// An integer argument, as of a method; what names the parameter in the message.
Int index_of(const Value& v, const char* what);
// The same where it must fit an int (a width, a count); clamped to ±2^31.
int count_of(const Value& v, const char* what);

// Fails unless a string of this many bytes may be made.
void check_product(Render& render, Int bytes);

}  // namespace deltad::jinja
