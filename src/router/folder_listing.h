// FolderListing: the variants that lie in a folder tree at one moment, by name. A variant is a file
// NAME.delta.safetensors, or a folder that is one (below); its name is its path from the root
// without the file's ending, so that sub-folders give names such as org/name. Any thread.
//
// A folder is itself a variant if it holds one variant file and that is named like the folder or
// has text files beside it (tokenizer.json, …); what lies deeper in it is not looked at. Text files
// beside several variant files, and LoRA adapters, are listed too, so that whoever takes them says
// what is wrong. Passed over: names that begin with a dot or end in .tmp or .part, and what is no
// variant file. Links are followed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace deltad {

struct ListedVariant {
  std::string path;
  // Changes whenever the content may have changed.
  std::vector<int64_t> stamp;
  Duration age{};  // since the last change; below 0 if a clock is wrong
};

struct FolderListing {
  std::map<std::string, ListedVariant> variants;
  // Folders that are there, but could not be read: names that begin so ("" all, else "org/") may or
  // may not be there.
  std::vector<std::string> unread;
  std::vector<std::string> problems;  // for the log: what is left out, and why
};

// on_path is called with each folder before it is read, and with each link to a file: who watches
// them from then on misses nothing.
FolderListing list_folder(const std::string& root,
                          const std::function<void(const std::string& path)>& on_path = {});

}  // namespace deltad
