// deltactl key: makes and lists API keys of the server's file of keys. Talks to no server: the file
// holds hashes only, and a running server reads it anew when it changes.
#include <fmt/core.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "io/file_reader.h"
#include "server/access/keys_file.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  KeyRules rules;
  std::vector<std::string> models;
  std::string expires, file;
  bool json = false;
};

Json rules_json(const KeyRules& rules) {
  Json json;
  json["name"] = rules.name;
  json["models"] = rules.models;
  json["admin"] = rules.admin;
  json["parallel_requests"] = rules.parallel_requests > 0 ? Json(rules.parallel_requests) : Json();
  json["tokens_per_minute"] = rules.tokens_per_minute > 0 ? Json(rules.tokens_per_minute) : Json();
  json["expires"] = rules.expires ? Json(expiry_text(*rules.expires)) : Json();
  return json;
}

Result<KeyEntry> entry_of(const Options& options, const std::string& key) {
  KeyEntry entry;
  entry.rules = options.rules;
  if (!is_key_name(entry.rules.name))
    return invalid_argument(
        fmt::format("name '{}': expected 1 to 64 letters, digits and . _ @ / -", entry.rules.name));
  if (!options.models.empty()) entry.rules.models = options.models;
  if (!options.expires.empty()) {
    entry.rules.expires = parse_expiry(options.expires);
    if (!entry.rules.expires)
      return invalid_argument(
          fmt::format("--expires '{}': expected a date such as 2027-01-31 or 2027-01-31T12:00:00Z",
                      options.expires));
  }
  entry.hash = hash_key(key);
  return entry;
}

// The key alone on standard output, so that it can be piped to where it is kept; the line for the
// file after it.
Result<int> make_new(const Options& options) {
  ASSIGN_OR_RETURN(const std::string key, new_key());
  ASSIGN_OR_RETURN(const KeyEntry entry, entry_of(options, key));
  if (options.json) {
    Json json = rules_json(entry.rules);
    json["key"] = key;
    json["sha256"] = hash_text(entry.hash);
    json["line"] = key_line(entry);
    print_json(json);
    return 0;
  }
  fmt::print("{}\n\n{}\n", key, key_line(entry));
  fmt::print(stderr,
             "The first line is the key, which is kept nowhere: give it to its user.\n"
             "The last one belongs under `keys:` in the file of server.keys_file.\n");
  return 0;
}

// From standard input: an argument would stay in the shell's history and in the list of processes.
Result<int> hash_given(const Options& options) {
  if (isatty(STDIN_FILENO) != 0) fmt::print(stderr, "Key: ");
  std::string key;
  std::getline(std::cin, key);
  if (key.empty()) return invalid_argument("standard input: expected a key on one line");
  ASSIGN_OR_RETURN(const KeyEntry entry, entry_of(options, key));
  if (options.json) {
    Json json = rules_json(entry.rules);
    json["sha256"] = hash_text(entry.hash);
    json["line"] = key_line(entry);
    print_json(json);
  } else {
    fmt::print("{}\n", key_line(entry));
  }
  return 0;
}

std::string or_dash(bool given, std::string text) { return given ? std::move(text) : "-"; }

Result<int> list(const Options& options) {
  ASSIGN_OR_RETURN(const std::string text, read_file(options.file));
  ASSIGN_OR_RETURN(const std::vector<KeyEntry> entries, parse_keys(text, options.file));
  const int64_t now = unix_now();
  const auto expired = [now](const KeyRules& r) { return r.expires && *r.expires <= now; };
  if (options.json) {
    Json data = Json::array();
    for (const KeyEntry& entry : entries) {
      Json json = rules_json(entry.rules);
      json["sha256"] = hash_text(entry.hash);
      json["expired"] = expired(entry.rules);
      data.push_back(std::move(json));
    }
    print_json({{"data", std::move(data)}});
    return 0;
  }
  size_t width = 4;
  for (const KeyEntry& entry : entries) width = std::max(width, entry.rules.name.size());
  fmt::print("{:<{}}  {:<12}  {:<5}  {:>8}  {:>10}  {:<20}  {}\n", "name", width, "sha256", "admin",
             "parallel", "tokens/min", "expires", "models");
  for (const KeyEntry& entry : entries) {
    const KeyRules& r = entry.rules;
    std::string models;
    for (const std::string& model : r.models) models += (models.empty() ? "" : ", ") + model;
    fmt::print("{:<{}}  {:<12}  {:<5}  {:>8}  {:>10}  {:<20}  {}\n", r.name, width,
               hash_text(entry.hash).substr(0, 12), r.admin ? "yes" : "no",
               or_dash(r.parallel_requests > 0, std::to_string(r.parallel_requests)),
               or_dash(r.tokens_per_minute > 0, fmt::format("{:.0f}", r.tokens_per_minute)),
               or_dash(r.expires.has_value(),
                       r.expires ? (expired(r) ? "expired" : expiry_text(*r.expires)) : ""),
               r.models.empty() ? "none" : models);
  }
  return 0;
}

void add_rules(Command* command, Options* options) {
  command->add_option("name", options->rules.name, "Name of the key, for logs")->required();
  command->add_option(
      "--model", options->models,
      "A model that it may use, or a pattern such as 'team/*'; may be given several "
      "times (default: all)");
  command->add_flag("--admin", options->rules.admin, "It opens the admin API too");
  command
      ->add_option("--parallel", options->rules.parallel_requests,
                   "Requests that it may have at once")
      ->range(1, 1000000);
  command
      ->add_option("--tokens-per-minute", options->rules.tokens_per_minute,
                   "Tokens of prompts and answers that it may use a minute")
      ->range(1.0, 1e12);
  command->add_option("--expires", options->expires,
                      "From when on it is refused: 2027-01-31 (the end of that day, UTC) or "
                      "2027-01-31T12:00:00Z");
}

Command* add_one(Command* parent, int* exit_code, const char* name, const char* help,
                 Result<int> (*run)(const Options&), std::shared_ptr<Options> options) {
  Command* command = parent->add_subcommand(name, help);
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options, run] { return run(*options); });
  return command;
}

}  // namespace

void add_key(Command& app, int* exit_code) {
  Command* key = app.add_subcommand("key", "Make and list API keys (server.keys_file)");
  key->require_subcommand();
  auto made = std::make_shared<Options>();
  add_rules(add_one(key, exit_code, "new", "Make a key; print it and its line for the file",
                    make_new, made),
            made.get());
  auto hashed = std::make_shared<Options>();
  add_rules(add_one(key, exit_code, "hash",
                    "The line for the file of a key read from standard input", hash_given, hashed),
            hashed.get());
  auto listed = std::make_shared<Options>();
  add_one(key, exit_code, "list", "What a file of keys says", list, listed)
      ->add_option("file", listed->file, "The file of keys")
      ->required();
}

}  // namespace deltad
