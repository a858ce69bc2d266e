// The subcommands of deltactl, one file each. To add one: a file NAME.cc with add_NAME, a line here
// and a line in main.cc.
#pragma once

#include <CLI/CLI.hpp>

namespace deltad {

// Each adds its subcommand and options to `app`; when the command line names it, it runs at once
// and leaves the program's exit code in *exit_code (see console.h, run_command).
void add_apply(CLI::App& app, int* exit_code);
void add_bench(CLI::App& app, int* exit_code);
void add_bench_serve(CLI::App& app, int* exit_code);
void add_compress(CLI::App& app, int* exit_code);
void add_eval(CLI::App& app, int* exit_code);
void add_generate(CLI::App& app, int* exit_code);
void add_inspect(CLI::App& app, int* exit_code);
void add_key(CLI::App& app, int* exit_code);
void add_logits(CLI::App& app, int* exit_code);
void add_merge(CLI::App& app, int* exit_code);
void add_plan(CLI::App& app, int* exit_code);
void add_pool(CLI::App& app, int* exit_code);
void add_render(CLI::App& app, int* exit_code);
void add_tokenize(CLI::App& app, int* exit_code);
void add_variants(CLI::App& app, int* exit_code);
void add_verify(CLI::App& app, int* exit_code);

}  // namespace deltad
