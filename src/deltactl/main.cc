// deltactl: the tool beside the daemon. Parses the command line; the subcommands do the work.
// Exit codes: 0 done, 1 failed, 2 the command line or the input is wrong.

#include <fmt/core.h>

#include <csignal>
#include <exception>
#include <optional>
#include <string>

#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "manual/completion.h"
#include "manual/man_page.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left is a failed write, not a silent death
  deltad::Command app(
      "Compress, inspect, verify, apply and run fine-tuned variants of a base model.", "deltactl");
  app.require_subcommand();
  app.add_version_flag("--version",
                       [] { return std::string("deltactl ") + deltad::kDeltactlVersion; });
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 the command line or the input is wrong. With --json errors "
      "are JSON on standard output, too.");
  app.add_hidden_text_flag(
      "--man", [&app] { return deltad::man_page(app, 1, deltad::kDeltactlVersion, "deltad(8)"); });
  int exit_code = 0;

  deltad::add_compress(app, &exit_code);
  deltad::add_inspect(app, &exit_code);
  deltad::add_verify(app, &exit_code);
  deltad::add_apply(app, &exit_code);
  deltad::add_merge(app, &exit_code);
  deltad::add_eval(app, &exit_code);
  deltad::add_generate(app, &exit_code);
  deltad::add_logits(app, &exit_code);
  deltad::add_bench(app, &exit_code);
  deltad::add_bench_serve(app, &exit_code);
  deltad::add_health(app, &exit_code);
  deltad::add_variants(app, &exit_code);
  deltad::add_pool(app, &exit_code);
  deltad::add_key(app, &exit_code);
  deltad::add_plan(app, &exit_code);
  deltad::add_tokenize(app, &exit_code);
  deltad::add_render(app, &exit_code);
  app.add_subcommand("completion", "Print the completion script for bash")->callback([&app] {
    fmt::print("{}", deltad::bash_completion(app));
  });

  try {
    if (const std::optional<int> code = app.parse(argc, argv)) return *code;
  } catch (const std::exception& error) {
    return deltad::fail(deltad::internal_error(error.what()), false);
  }
  return exit_code;
}
