// Manual pages and completion follow the command line that they are made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manual/completion.h"
#include "manual/man_page.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The caller owns what the options are stored in.
struct Example {
  Command app{"Does it.", "doer"};
  std::string file, secret;
  bool fast = false;

  Example() {
    Command* run = app.add_subcommand("run", "Run a thing");
    run->add_option("file", file, "What to run")->required();
    run->add_flag("-f,--fast", fast, ".fast \\ 'way");
    run->footer("Only once.");
    run->add_option("--secret", secret, "Nobody's")->hidden();
    app.add_subcommand("list", "Lists")->add_subcommand("all", "All of them");
    app.add_subcommand("hidden", "Not told of")->hidden();
  }
};

TEST(ManPage, HasEveryOptionAndCommandButHiddenOnes) {
  const std::string page = man_page(Example().app, 8, "1.2", "other(1)");
  EXPECT_THAT(page, HasSubstr(".TH DOER 8 \"\" \"doer 1.2\"\n"));
  EXPECT_THAT(page, HasSubstr("doer \\- Does it.\n"));
  EXPECT_THAT(page,
              HasSubstr(".SS \\fBdoer run\\fR [\\fIoptions\\fR] \\fIfile\\fR\nRun a thing.\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-f,\\-\\-fast\\fR"));
  EXPECT_THAT(page, HasSubstr("\n\\&.fast \\e 'way\n"));  // a dot that begins a line is no request
  EXPECT_THAT(page, HasSubstr("Only once."));
  EXPECT_THAT(page, HasSubstr(".SS \\fBdoer list all\\fR"));
  EXPECT_THAT(page, HasSubstr(".SH SEE ALSO\nother(1)\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
  EXPECT_THAT(page, Not(HasSubstr("hidden")));
}

TEST(Completion, KnowsEveryPath) {
  const std::string script = bash_completion(Example().app);
  EXPECT_THAT(script, HasSubstr("\"\") commands=\"run list\" options=\"--help\" ;;\n"));
  EXPECT_THAT(script, HasSubstr("\"run\") commands=\"\" options=\"--help --fast\" ;;\n"));
  EXPECT_THAT(script, HasSubstr("\"list\") commands=\"all\" options=\"--help\" ;;\n"));
  EXPECT_THAT(script, HasSubstr("\"run\"|\"list\"|\"list all\") path=\"$word\" ;;\n"));
  EXPECT_THAT(script, Not(HasSubstr("hidden")));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace deltad
