// The subcommands of deltactl, one file each. To add one: a file NAME.cc with add_NAME, a line here
// and a line in main.cc.
#pragma once

#include "manual/command.h"

namespace deltad {

// Each adds its subcommand and options to `app`; when the command line names it, it runs at once
// and leaves the program's exit code in *exit_code (see console.h, run_command).
void add_apply(Command& app, int* exit_code);
void add_bench(Command& app, int* exit_code);
void add_bench_serve(Command& app, int* exit_code);
void add_compress(Command& app, int* exit_code);
void add_eval(Command& app, int* exit_code);
void add_generate(Command& app, int* exit_code);
void add_health(Command& app, int* exit_code);
void add_inspect(Command& app, int* exit_code);
void add_key(Command& app, int* exit_code);
void add_logits(Command& app, int* exit_code);
void add_merge(Command& app, int* exit_code);
void add_plan(Command& app, int* exit_code);
void add_pool(Command& app, int* exit_code);
void add_render(Command& app, int* exit_code);
void add_tokenize(Command& app, int* exit_code);
void add_variants(Command& app, int* exit_code);
void add_verify(Command& app, int* exit_code);

}  // namespace deltad
