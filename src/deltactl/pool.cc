// deltactl pool: the adapter pool of a running deltad, through its admin API. A change is waited
// for and its progress shown; what was tried is shown when it has ended, above all when it was
// refused.
#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/byte_count.h"
#include "base/clock.h"
#include "deltactl/admin_client.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"

namespace deltad {
namespace {

constexpr const char* kPool = "/admin/v1/pool";
constexpr Duration kLook = std::chrono::milliseconds(200);  // between two looks at an operation

struct Options {
  AdminClient server;
  std::string name, path, questions, bytes;
  uint64_t operation = 0;
  bool no_wait = false, json = false;
};

std::string adapter_path(const std::string& name) {
  return fmt::format("{}/adapters/{}", kPool, percent_encoded(name));
}

std::string percent(const Json& share) {
  return fmt::format("{:.1f} %", 100 * share.get<double>());
}

void print_adapters(const Json& adapters) {
  const size_t width = width_of(adapters, "name", 7);
  fmt::print("{:<{}}  {:>7}  {:>7}  {:>8}  {:>9}  {}\n", "adapter", width, "alone", "now", "kept",
             "questions", "member");
  for (const Json& a : adapters)
    fmt::print("{:<{}}  {:>7}  {:>7}  {:>8}  {:>9}  {}\n", a.at("name").get<std::string>(), width,
               percent(a.at("single_score")), percent(a.at("score")), percent(a.at("share_kept")),
               a.at("questions").get<int64_t>(), a.at("member").get<std::string>());
}

std::string joined(const Json& names) {
  std::string out;
  for (const Json& name : names) out += (out.empty() ? "" : ", ") + name.get<std::string>();
  return out;
}

void print_members(const Json& members) {
  const size_t width = width_of(members, "name", 6);
  fmt::print("{:<{}}  {:>10}  {:>4}  {:>4}  {}\n", "member", width, "size", "bits", "rank",
             "adapters");
  for (const Json& m : members)
    fmt::print("{:<{}}  {:>10}  {:>4}  {:>4}  {}\n", m.at("name").get<std::string>(), width,
               human_bytes(m.at("bytes").get<int64_t>()), m.at("bits").get<int>(),
               m.at("rank").get<int64_t>(), joined(m.at("adapters")));
}

std::string described(const Json& operation) {
  std::string out = fmt::format("{} {}", operation.at("id").get<uint64_t>(),
                                operation.at("operation").get<std::string>());
  if (!operation.at("name").is_null()) out += " " + operation.at("name").get<std::string>();
  if (!operation.at("bytes").is_null())
    out += fmt::format(" {}", operation.at("bytes").get<int64_t>());
  return out;
}

Result<int> list(const Options& options) {
  ASSIGN_OR_RETURN(const Json pool, options.server.ask("GET", kPool));
  if (options.json) {
    print_json(pool);
    return 0;
  }
  fmt::print("{} of {} used: {} adapters in {} members\n",
             human_bytes(pool.at("used_bytes").get<int64_t>()),
             human_bytes(pool.at("budget_bytes").get<int64_t>()), pool.at("adapters").size(),
             pool.at("members").size());
  if (!pool.at("adapters").empty()) {
    print_adapters(pool.at("adapters"));
    print_members(pool.at("members"));
  }
  for (const Json& operation : pool.at("operations")) {
    const std::string state = operation.at("state");
    if (state != "queued" && state != "running") continue;
    fmt::print("operation {}: {}{}\n", described(operation), state,
               operation.at("doing").is_null()
                   ? ""
                   : fmt::format(", {}", operation.at("doing").get<std::string>()));
  }
  return 0;
}

Result<int> show(const Options& options) {
  ASSIGN_OR_RETURN(const Json adapter, options.server.ask("GET", adapter_path(options.name)));
  if (options.json) {
    print_json(adapter);
    return 0;
  }
  print_adapters(Json::array({adapter}));
  print_members(Json::array({adapter.at("served_by")}));
  return 0;
}

void print_trial(const Json& trial) {
  fmt::print("  {} of {}: {} → {} in {} bits of rank {}", trial.at("step").get<std::string>(),
             joined(trial.at("adapters")), human_bytes(trial.at("bytes_before").get<int64_t>()),
             human_bytes(trial.at("bytes_after").get<int64_t>()), trial.at("bits").get<int>(),
             trial.at("rank").get<int64_t>());
  if (!trial.at("similarity").is_null())
    fmt::print(", similarity {:.3f}", trial.at("similarity").get<double>());
  if (trial.at("kept_energy").get<double>() < 1)
    fmt::print(", {} of the energy", percent(trial.at("kept_energy")));
  fmt::print(": {}\n", trial.at("accepted").get<bool>() ? "kept" : "not kept");
  for (const Json& score : trial.at("scores"))
    fmt::print("    {}: {} of {} alone, {} kept\n", score.at("name").get<std::string>(),
               percent(score.at("score")), percent(score.at("single_score")),
               percent(score.at("share_kept")));
  if (!trial.at("reason").is_null()) fmt::print("    {}\n", trial.at("reason").get<std::string>());
}

void print_report(const Json& operation) {
  const Json& report = operation.at("report");
  fmt::print("{}: {}\n", described(operation), operation.at("state").get<std::string>());
  // What removes, has not ended or failed before it looked at the pool has nothing to report.
  if (operation.at("operation") == "remove" || report.at("budget_bytes") == 0) return;
  fmt::print("  {} of {} before, {} after\n", human_bytes(report.at("bytes_before").get<int64_t>()),
             human_bytes(report.at("budget_bytes").get<int64_t>()),
             human_bytes(report.at("bytes_after").get<int64_t>()));
  for (const Json& trial : report.at("trials")) print_trial(trial);
  if (operation.at("operation") == "add" && operation.at("state") == "done" &&
      report.at("single_score") == 0)
    fmt::print(stderr,
               "warning: the adapter answers none of its questions right, so nothing guards it: "
               "are they its own?\n");
}

// One line on a terminal, which is written over; nothing elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() { show(""); }
  void show(const std::string& text) {
    if (!shown_ || text == last_) return;
    fmt::print(stderr, "\r\x1b[K{}", text);
    std::fflush(stderr);
    last_ = text;
  }

 private:
  const bool shown_ = isatty(STDERR_FILENO) == 1;
  std::string last_;
};

// Waits until the operation has ended.
Result<Json> finished(const Options& options, Json operation) {
  const std::string path =
      fmt::format("{}/operations/{}", kPool, operation.at("id").get<uint64_t>());
  ProgressLine line;
  for (;;) {
    const std::string state = operation.at("state");
    if (state != "queued" && state != "running") return operation;
    const std::string doing =
        operation.at("doing").is_null() ? state : operation.at("doing").get<std::string>();
    line.show(fmt::format("{}: {}", described(operation), doing));
    std::this_thread::sleep_for(kLook);
    ASSIGN_OR_RETURN(operation, options.server.ask("GET", path));
  }
}

Result<int> change(const Options& options, std::string method, std::string path,
                   const Json& body = nullptr) {
  ASSIGN_OR_RETURN(Json operation, options.server.ask(std::move(method), std::move(path), body));
  if (!options.no_wait) {
    ASSIGN_OR_RETURN(operation, finished(options, std::move(operation)));
  }
  if (options.json)
    print_json(operation);
  else
    print_report(operation);
  const Json& error = operation.at("error");
  if (error.is_null()) return 0;
  const Status status = status_of(error.at("status").get<int>(), error.at("message"));
  if (options.json) return exit_code_of(status);  // the document has said it
  return status;
}

Result<int> add(const Options& options) {
  return change(options, "POST", fmt::format("{}/adapters", kPool),
                {{"name", options.name},
                 {"path", path_for_server(options.path)},
                 {"questions", path_for_server(options.questions)}});
}

Result<int> remove(const Options& options) {
  return change(options, "DELETE", adapter_path(options.name));
}

Result<int> cancel(const Options& options) {
  return change(options, "DELETE", fmt::format("{}/operations/{}", kPool, options.operation));
}

Result<int> budget(const Options& options) {
  const std::optional<int64_t> bytes = byte_count(options.bytes);
  if (!bytes)
    return invalid_argument(
        fmt::format("'{}': expected a size such as 64MiB or a number of bytes", options.bytes));
  return change(options, "PUT", fmt::format("{}/budget", kPool), {{"bytes", *bytes}});
}

void add_name(Command* command, Options* options) {
  command->add_option("name", options->name, "The adapter's name")->required();
}

void add_no_wait(Command* command, Options* options) {
  command->add_flag("--no-wait", options->no_wait, "Do not wait until the operation has ended");
}

}  // namespace

void add_pool(Command& app, int* exit_code) {
  Command* parent =
      app.add_subcommand("pool", "Show and change the adapter pool of a running deltad");
  parent->require_subcommand();
  add_admin_command<Options>(
      parent, exit_code, "list", "Show the adapters, the members that serve them and what goes on",
      [](Command*, Options*) {}, list);
  add_admin_command<Options>(parent, exit_code, "show", "Show one adapter and its member", add_name,
                             show);
  add_admin_command<Options>(
      parent, exit_code, "add", "Add a LoRA adapter; the pool makes room for it if it can",
      [](Command* command, Options* options) {
        add_name(command, options);
        command
            ->add_option("path", options->path,
                         "Its folder or file, as the server's machine has it")
            ->required();
        command
            ->add_option("questions", options->questions,
                         "Its evaluation set: JSON lines {\"prompt\", \"answer\"}, there too")
            ->required();
        add_no_wait(command, options);
      },
      add);
  add_admin_command<Options>(
      parent, exit_code, "remove", "Remove an adapter; running requests end on it",
      [](Command* command, Options* options) {
        add_name(command, options);
        add_no_wait(command, options);
      },
      remove);
  add_admin_command<Options>(
      parent, exit_code, "cancel", "Cancel an operation; what it had done is undone",
      [](Command* command, Options* options) {
        command
            ->add_option("operation", options->operation,
                         "Its number, as `list` shows it while it waits or runs")
            ->required();
        add_no_wait(command, options);
      },
      cancel);
  add_admin_command<Options>(
      parent, exit_code, "budget", "Set what the members' files may take",
      [](Command* command, Options* options) {
        command->add_option("bytes", options->bytes, "Such as 64MiB")->required();
        add_no_wait(command, options);
      },
      budget);
}

}  // namespace deltad
