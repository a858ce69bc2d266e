// A pool of small adapters with a scorer that a test scripts.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "merge/adapter_pool.h"
#include "tests/support/small_adapter.h"
#include "tests/support/temp_folder.h"

namespace deltad::testing {

// The evaluation set of an adapter has one question: its name.
class ScriptedScorer final : public PoolScorer {
 public:
  Result<double> score(const std::string& path, const std::vector<Question>& questions) override {
    asked.push_back(questions[0].prompt);
    return script(questions[0].prompt, path);
  }
  std::vector<std::string> asked;
  std::function<Result<double>(const std::string& name, const std::string& path)> script =
      [](const std::string&, const std::string&) { return 1.0; };
};

class RecordingPublisher final : public PoolPublisher {
 public:
  Status publish(const PoolView& view) override {
    // What is served must be there.
    for (const PoolMember& member : view.members)
      EXPECT_TRUE(std::filesystem::exists(member.path)) << member.path;
    views.push_back(view);
    return result;
  }
  std::vector<PoolView> views;
  Status result;
};

class PoolWorld {
 public:
  explicit PoolWorld(int64_t budget) { options.budget = budget; }

  Status open() {
    pool.reset();
    if (!folder) {
      auto opened = DurableFolder::open(home.path() + "/pool");
      EXPECT_TRUE(opened.ok());
      folder = std::move(*opened);
    }
    auto opened = AdapterPool::open(options, table, "base", *folder, scorer, publisher);
    if (!opened.ok()) return opened.status();
    pool = std::move(*opened);
    return {};
  }
  std::string adapter(const std::string& name, const SmallAdapter& of) {
    adapters[name] = of;
    return write_small(table, of, home.path() + "/" + name + ".lora.safetensors");
  }
  std::string questions(const std::string& name) const {
    return home.write(name + ".jsonl", "{\"prompt\": \"" + name + "\", \"answer\": \"yes\"}\n");
  }
  Status add(const std::string& name, const SmallAdapter& of) {
    return pool->add(name, adapter(name, of), questions(name), nullptr, &report);
  }
  // The bytes of this adapter's file in 16 bits.
  int64_t bytes_of(const SmallAdapter& of) const {
    const std::string path = home.path() + "/size.lora.safetensors";
    const auto bytes =
        write_packed_adapter(pack_adapter(16, "base", small_factors(table, of)), path);
    EXPECT_TRUE(bytes.ok());
    return *bytes;
  }
  std::vector<std::string> steps() const {  // "name of step: kept" or "…: not kept"
    std::vector<std::string> out;
    for (const PoolTrial& trial : report.trials) {
      std::string who;
      for (const std::string& name : trial.adapters) who += (who.empty() ? "" : "+") + name;
      out.push_back(std::string(pool_step_name(trial.step)) + " " + who +
                    (trial.accepted ? "" : " not kept"));
    }
    return out;
  }

  TempFolder home;
  WeightTable table = small_table();
  PoolOptions options;
  ScriptedScorer scorer;
  RecordingPublisher publisher;
  std::map<std::string, SmallAdapter> adapters;
  std::unique_ptr<DurableFolder> folder;
  std::unique_ptr<AdapterPool> pool;
  PoolReport report;
};

}  // namespace deltad::testing
