// deltactl: the tool beside the daemon. Parses the command line; the subcommands do the work.
// Exit codes: 0 done, 1 failed, 2 the command line or the input is wrong.

#include <csignal>
#include <exception>

#include "deltactl/commands.h"
#include "deltactl/console.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left is a failed write, not a silent death
  CLI::App app("Compress, inspect, verify, apply and run fine-tuned variants of a base model.",
               "deltactl");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("deltactl ") + deltad::kDeltactlVersion);
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
  deltad::add_variants(app, &exit_code);
  deltad::add_pool(app, &exit_code);
  deltad::add_key(app, &exit_code);
  deltad::add_plan(app, &exit_code);
  deltad::add_tokenize(app, &exit_code);
  deltad::add_render(app, &exit_code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    return deltad::fail(deltad::internal_error(error.what()), false);
  }
  return exit_code;
}
