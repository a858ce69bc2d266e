// DurableFolder: the few file operations that a durable state is made of, each one a step at which
// the process may be killed or the power may go. Names are relative to the folder. An interface, so
// that a test can stop at any step, or forget what was not synced. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deltad {

class DurableFolder {
 public:
  // The real one, for this owner alone: kConflict if somebody has it open. The folder is made if it
  // is not there.
  static Result<std::unique_ptr<DurableFolder>> open(const std::string& path);
  virtual ~DurableFolder() = default;

  virtual const std::string& path() const = 0;

  // A folder inside; fine if it is there.
  virtual Status make_folder(const std::string& name) = 0;
  // Names of the files in the folder `name` ("": this one), sorted.
  virtual Result<std::vector<std::string>> list(const std::string& name) = 0;
  // kNotFound if there is none.
  virtual Result<std::string> read(const std::string& name) = 0;
  // A new file, or the old one's content replaced. Not durable.
  virtual Status write(const std::string& name, std::string_view content) = 0;
  // The file's content is durable, whoever wrote it; its name is not.
  virtual Status sync(const std::string& name) = 0;
  // Takes the place of `to`. Not durable.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  // The names in the folder `name` are durable.
  virtual Status sync_folder(const std::string& name) = 0;
  // Fine if it is not there. Not durable.
  virtual Status remove(const std::string& name) = 0;
};

}  // namespace deltad
