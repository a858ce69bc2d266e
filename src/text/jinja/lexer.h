// Splits a template into tokens, with jinja's treatment of whitespace: trim_blocks, lstrip_blocks,
// the signs - and + in tags, one newline at the end dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace deltad::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of names, operators, strings (unescaped) and data
  Int integer = 0;
  double real = 0;

  bool is(TokenKind k) const { return kind == k; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// What the token is called in messages.
std::string describe(const Token& token);
std::string describe(TokenKind kind);

// Fails with jinja's message and the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace deltad::jinja
