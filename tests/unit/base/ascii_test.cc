#include "base/ascii.h"

#include <gtest/gtest.h>

namespace deltad {
namespace {

TEST(Ascii, HexDigitsOfEitherCaseAndNothingElse) {
  int digits = 0;
  for (int c = 0; c < 256; ++c) digits += hex_digit(static_cast<char>(c)) >= 0;
  EXPECT_EQ(digits, 22);
  EXPECT_EQ(hex_digit('9'), 9);
  EXPECT_EQ(hex_digit('a'), 10);
  EXPECT_EQ(hex_digit('F'), 15);
  EXPECT_EQ(hex_digit('g'), -1);
}

TEST(Ascii, LettersAndDigits) {
  int count = 0;
  for (int c = 0; c < 256; ++c) count += is_ascii_alphanumeric(static_cast<char>(c));
  EXPECT_EQ(count, 62);
}

TEST(Ascii, CaseIsIgnoredOfLettersOnly) {
  EXPECT_TRUE(same_ignoring_case("Content-Length", "content-LENGTH"));
  EXPECT_FALSE(same_ignoring_case("chunked", "chunked "));
  EXPECT_FALSE(same_ignoring_case("", "a"));
  EXPECT_FALSE(same_ignoring_case("[", "{"));  // 32 apart, as the letters' cases are
}

}  // namespace
}  // namespace deltad
