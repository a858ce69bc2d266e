// MonosoupMerge: MonoSoup over whole models, one matrix at a time in memory for each thread. Rows
// may be read by several threads at once.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "merge/keep_rule.h"
#include "merge/memory_account.h"
#include "merge/merged_tune.h"
#include "merge/monosoup.h"

namespace deltad {

struct MonosoupReport {
  std::string name;
  size_t source = 0;
  MonosoupFigures figures;
};

class MonosoupMerge : public MergedTune {
 public:
  enum class Form { kPublished, kAveraged };
  // Published: of the one source there is. Matrices held at once: `jobs`. All stay alive longer.
  MonosoupMerge(const MergeSources& sources, Form form, KeepRules rules, int jobs,
                MemoryAccount* memory);

  std::vector<MonosoupReport> reports() const;  // by name and source
  // What one thread holds at most.
  static int64_t bytes_for(const Shape& matrix, Form form);

 protected:
  Status merged_rows(const std::string& name, int64_t first, int64_t count,
                     double* delta) const override;

 private:
  struct Held {
    Matrix delta;
    MemoryAccount::Charge charge;
  };
  Result<std::shared_ptr<const Held>> matrix(const std::string& name) const;
  Result<std::shared_ptr<const Held>> compute(const std::string& name) const;

  const MergeSources& sources_;
  const Form form_;
  const KeepRules rules_;
  const size_t jobs_;
  MemoryAccount* const memory_;
  mutable Mutex mutex_;
  mutable std::deque<std::pair<std::string, std::shared_ptr<const Held>>> held_ GUARDED_BY(mutex_);
  mutable std::map<std::pair<std::string, size_t>, MonosoupFigures> figures_ GUARDED_BY(mutex_);
};

}  // namespace deltad
