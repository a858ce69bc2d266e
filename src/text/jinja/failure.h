// Failure: how a step of a template's compilation or rendering ends early. Thrown inside the
// interpreter only; ChatTemplate catches it at the border and makes a Status of it.
#pragma once

#include <string>
#include <utility>

namespace deltad::jinja {

struct Failure {
  std::string message;
  int line = 0;  // 0: the line being executed
};

[[noreturn]] inline void fail(std::string message, int line = 0) {
  throw Failure{std::move(message), line};
}

}  // namespace deltad::jinja
