// deltactl variants: the variants of a running deltad, through its admin API. Loads nothing itself.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "deltactl/admin_client.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"

namespace deltad {
namespace {

struct Options {
  AdminClient server;
  std::string name, path;
  bool replace = false, json = false;
};

std::string variant_path(const std::string& name, const std::string& action = "") {
  return "/admin/v1/variants/" + percent_encoded(name) + action;
}

Result<Json> ask(const Options& options, std::string method, std::string path,
                 const Json& body = nullptr) {
  return options.server.ask(std::move(method), std::move(path), body);
}

std::string ago(const Json& idle) {
  if (idle.is_null()) return "never";
  const double seconds = idle.get<double>();
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.0f} h", seconds / 3600);
}

void print_table(const Json& variants) {
  const size_t width = width_of(variants, "name", 4);
  fmt::print("{:<{}}  {:<10}  {:>10}  {:<6}  {:>7}  {:>7}  {:>8}  {:>8}  {}\n", "name", width,
             "state", "size", "pinned", "running", "waiting", "req/s", "unused", "path");
  for (const Json& v : variants) {
    const int64_t bytes = v.at("bytes").get<int64_t>();
    fmt::print("{:<{}}  {:<10}  {:>10}  {:<6}  {:>7}  {:>7}  {:>8.3f}  {:>8}  {}\n",
               v.at("name").get<std::string>(), width, v.at("state").get<std::string>(),
               bytes > 0 ? human_bytes(bytes) : "-", v.at("pinned").get<bool>() ? "yes" : "no",
               v.at("in_flight").get<int64_t>(), v.at("waiting").get<int64_t>(),
               v.at("requests_per_second").get<double>(), ago(v.at("idle_seconds")),
               v.at("path").get<std::string>());
    if (!v.at("error").is_null())
      fmt::print("{:<{}}  next try in {:.0f} s: {}\n", "", width,
                 v.at("retry_seconds").get<double>(), v.at("error").get<std::string>());
  }
}

Result<int> list(const Options& options) {
  ASSIGN_OR_RETURN(const Json json, ask(options, "GET", "/admin/v1/variants"));
  if (options.json)
    print_json(json);
  else
    print_table(json.at("data"));
  return 0;
}

// Prints what came of a change.
Result<int> report(const Options& options, const Result<Json>& answer, const char* done) {
  if (!answer.ok()) return answer.status();
  if (options.json)
    print_json(*answer);
  else
    fmt::print("{}: {}\n", options.name, done);
  return 0;
}

Result<int> add(const Options& options) {
  Json body = {{"name", options.name}, {"path", path_for_server(options.path)}};
  if (options.replace) body["replace"] = true;
  return report(options, ask(options, "POST", "/admin/v1/variants", body),
                options.replace ? "added or replaced" : "added");
}

Result<int> remove(const Options& options) {
  return report(options, ask(options, "DELETE", variant_path(options.name)), "removed");
}

void add_name(Command* command, Options* options) {
  command->add_option("name", options->name, "The variant's name")->required();
}

}  // namespace

void add_variants(Command& app, int* exit_code) {
  Command* parent =
      app.add_subcommand("variants", "List and change the variants of a running deltad");
  parent->require_subcommand();
  add_admin_command<Options>(
      parent, exit_code, "list", "Show all variants and their state", [](Command*, Options*) {},
      list);
  add_admin_command<Options>(
      parent, exit_code, "add", "Add a variant; it is loaded when it is first asked for",
      [](Command* command, Options* options) {
        add_name(command, options);
        command
            ->add_option("path", options->path,
                         "Its file or folder, as the server's machine has it")
            ->required();
        command->add_flag("--replace", options->replace, "Take the place of one of this name");
      },
      add);
  add_admin_command<Options>(parent, exit_code, "rm",
                             "Remove a variant; running requests end on it", add_name, remove);
  struct Action {
    const char *name, *done, *help;
  };
  for (const Action& action : {
           Action{"pin", "pinned", "Load a variant and keep it in memory"},
           Action{"unpin", "unpinned", "Let a pinned variant make room again"},
           Action{"prefetch", "is being loaded", "Load a variant before it is asked for"},
           Action{"evict", "evicted", "Take an idle variant out of memory"},
       })
    add_admin_command<Options>(
        parent, exit_code, action.name, action.help, add_name, [action](const Options& options) {
          const std::string path = variant_path(options.name, std::string("/") + action.name);
          return report(options, ask(options, "POST", path), action.done);
        });
}

}  // namespace deltad
