// DurableFolders that fail on purpose. ForgetfulFolder works in a real folder and remembers what a
// disk would still have after a power cut: contents that were synced, under names whose folder was
// synced. StoppingFolder does something at the n-th operation.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/durable_folder.h"
#include "tests/support/temp_folder.h"

namespace deltad::testing {

// Calls before(n) ahead of its n-th operation that changes something; an error stands for it.
class StoppingFolder : public DurableFolder {
 public:
  StoppingFolder(DurableFolder& real, std::function<Status(int)> before)
      : real_(real), before_(std::move(before)) {}
  int operations() const { return count_; }

  const std::string& path() const override { return real_.path(); }
  Result<std::vector<std::string>> list(const std::string& name) override {
    return real_.list(name);
  }
  Result<std::string> read(const std::string& name) override { return real_.read(name); }
  Status make_folder(const std::string& name) override {
    return step([&] { return real_.make_folder(name); });
  }
  Status write(const std::string& name, std::string_view content) override {
    // Half of it and then the rest: what a kill in the middle leaves.
    RETURN_IF_ERROR(step([&] { return real_.write(name, content.substr(0, content.size() / 2)); }));
    return step([&] { return real_.write(name, content); });
  }
  Status sync(const std::string& name) override {
    return step([&] { return real_.sync(name); });
  }
  Status rename(const std::string& from, const std::string& to) override {
    return step([&] { return real_.rename(from, to); });
  }
  Status sync_folder(const std::string& name) override {
    return step([&] { return real_.sync_folder(name); });
  }
  Status remove(const std::string& name) override {
    return step([&] { return real_.remove(name); });
  }

 private:
  Status step(const std::function<Status()>& operation) {
    RETURN_IF_ERROR(before_(count_++));
    return operation();
  }
  DurableFolder& real_;
  const std::function<Status(int)> before_;
  int count_ = 0;
};

class ForgetfulFolder : public DurableFolder {
 public:
  explicit ForgetfulFolder(DurableFolder& real) : real_(real) {
    namespace fs = std::filesystem;
    for (const auto& file : fs::recursive_directory_iterator(real.path())) {
      const std::string name = fs::relative(file.path(), real.path()).string();
      if (file.is_directory())
        disk_folders_.insert(name), made_.insert(name);
      else
        disk_[name] = std::make_shared<std::optional<std::string>>(slurp(file.path().string()));
    }
    now_ = disk_;
  }

  enum class Names { kSynced, kAll };
  // What a power cut would leave, in a folder that is empty. Contents that were not synced are
  // lost; names that were not synced may be, too.
  void restore(const std::string& to, Names names) const {
    namespace fs = std::filesystem;
    for (const std::string& folder : names == Names::kSynced ? disk_folders_ : made_)
      fs::create_directories(to + "/" + folder);
    for (const auto& [name, content] : names == Names::kSynced ? disk_ : now_)
      std::ofstream(to + "/" + name, std::ios::binary) << content->value_or("");
  }

  const std::string& path() const override { return real_.path(); }
  Result<std::vector<std::string>> list(const std::string& name) override {
    return real_.list(name);
  }
  Result<std::string> read(const std::string& name) override { return real_.read(name); }
  Status make_folder(const std::string& name) override {
    made_.insert(name);
    return real_.make_folder(name);
  }
  Status write(const std::string& name, std::string_view content) override {
    if (now_.count(name) == 0) now_[name] = std::make_shared<std::optional<std::string>>();
    return real_.write(name, content);
  }
  Status sync(const std::string& name) override {
    // Also files that others wrote.
    if (now_.count(name) == 0) now_[name] = std::make_shared<std::optional<std::string>>();
    *now_[name] = slurp(path() + "/" + name);
    return real_.sync(name);
  }
  Status rename(const std::string& from, const std::string& to) override {
    const auto at = now_.find(from);
    now_[to] = at != now_.end() ? at->second : std::make_shared<std::optional<std::string>>();
    now_.erase(from);
    return real_.rename(from, to);
  }
  Status sync_folder(const std::string& name) override {
    const auto inside = [&](const std::string& file) {
      const size_t slash = file.rfind('/');
      return (slash == std::string::npos ? "" : file.substr(0, slash)) == name;
    };
    std::erase_if(disk_, [&](const auto& file) { return inside(file.first); });
    for (const auto& [file, content] : now_)
      if (inside(file)) disk_[file] = content;
    for (const std::string& folder : made_)
      if (inside(folder)) disk_folders_.insert(folder);
    return real_.sync_folder(name);
  }
  Status remove(const std::string& name) override {
    now_.erase(name);
    // A removal that nobody synced may be on the disk or not. That it is there is the harder case.
    disk_.erase(name);
    return real_.remove(name);
  }

 private:
  using Content = std::shared_ptr<std::optional<std::string>>;  // as synced; none: never
  DurableFolder& real_;
  std::map<std::string, Content> now_, disk_;  // names that are there; names that are durable
  std::set<std::string> made_, disk_folders_;
};

}  // namespace deltad::testing
