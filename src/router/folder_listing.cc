#include "router/folder_listing.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "delta/variant_path.h"
#include "io/file_stamp.h"
#include "io/quote.h"

namespace deltad {
namespace {

constexpr size_t kDeepest = 16;  // levels of sub-folders

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string without_suffix(const std::string& name) {
  return name.substr(0, name.size() - std::string(kVariantSuffix).size());
}

bool temporary(const std::string& name) {
  const std::string stem = ends_with(name, kVariantSuffix) ? without_suffix(name) : name;
  return name.front() == '.' || ends_with(stem, ".tmp") || ends_with(stem, ".part");
}

bool is_text_file(const std::string& name) {
  return std::any_of(std::begin(kVariantTextFiles), std::end(kVariantTextFiles),
                     [&](const char* text) { return name == text; });
}

int64_t nanoseconds(const timespec& t) { return t.tv_sec * int64_t{1000000000} + t.tv_nsec; }

// What of some files says whether they are the same as before.
class Mark {
 public:
  // Of the entry itself and of what it links to; false if there is nothing.
  bool add(const std::string& path) {
    struct stat link, info;
    if (lstat(path.c_str(), &link) != 0 || stat(path.c_str(), &info) != 0) return false;
    if (S_ISLNK(link.st_mode)) add(link);
    add(info);
    return true;
  }
  void fill(ListedVariant* out) {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->age = std::chrono::nanoseconds(nanoseconds(now) - latest_);
    out->stamp = std::move(stamp_);
  }

 private:
  void add(const struct stat& s) {
    latest_ = std::max(latest_, nanoseconds(s.st_ctim));
    add_to_stamp(s, &stamp_);
  }
  int64_t latest_ = 0;
  FileStamp stamp_;
};

class Lister {
 public:
  explicit Lister(const std::function<void(const std::string&)>& on_path) : on_path_(on_path) {}

  // prefix: what names in this folder begin with, "" or ending in a slash.
  void folder(const std::string& path, const std::string& prefix) {
    struct stat info {};
    const bool there = stat(path.c_str(), &info) == 0;  // if not, reading it says why
    const std::pair<dev_t, ino_t> self{info.st_dev, info.st_ino};
    if (there && (above_.size() > kDeepest || above_.count(self) > 0)) {
      problem(path, above_.count(self) > 0 ? "it is a link to a folder above it"
                                           : "it lies too deep in the folder");
      return;
    }
    Content content;
    if (!read(path, prefix, &content) || !there) return;
    if (!prefix.empty() && is_variant(content, prefix)) {
      add(prefix.substr(0, prefix.size() - 1), path, content.parts(path));
      return;
    }
    for (const std::string& name : content.variants) {
      const std::string file = path + "/" + name;
      add(prefix + without_suffix(name), file, {file});
    }
    above_.insert(self);
    for (const std::string& name : content.folders) folder(path + "/" + name, prefix + name + "/");
    above_.erase(self);
  }

  FolderListing take() { return std::move(listing_); }

 private:
  struct Content {  // in a fixed order
    std::set<std::string> variants, texts, folders;
    bool adapter = false;

    std::vector<std::string> parts(const std::string& path) const {
      std::vector<std::string> out;
      for (const auto* names : {&variants, &texts})
        for (const std::string& name : *names) out.push_back(path + "/" + name);
      return out;
    }
  };

  bool read(const std::string& path, const std::string& prefix, Content* content) {
    if (on_path_) on_path_(path);
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()), closedir);
    errno = dir ? 0 : errno;
    while (dir) {
      errno = 0;
      const dirent* entry = readdir(dir.get());
      if (entry == nullptr) break;
      look_at(path, entry->d_name, content);
    }
    if (errno == 0) return true;
    const int error = errno;
    const bool gone = error == ENOENT || error == ENOTDIR;
    if (!gone) listing_.unread.push_back(prefix);
    if (!gone || prefix.empty())
      problem(path, "it cannot be read: " + std::generic_category().message(error));
    return false;
  }

  void look_at(const std::string& folder, const std::string& name, Content* content) {
    if (name == "." || name == ".." || temporary(name)) return;
    const std::string path = folder + "/" + name;
    struct stat link, info;
    if (lstat(path.c_str(), &link) != 0) return;
    const bool linked = S_ISLNK(link.st_mode);
    const bool there = stat(path.c_str(), &info) == 0;
    if (linked && !there && ends_with(name, kVariantSuffix))
      problem(path, "it is a link to something that is not there");
    if (!there) return;
    if (S_ISDIR(info.st_mode)) {
      content->folders.insert(name);
      return;
    }
    if (!S_ISREG(info.st_mode)) return;
    const bool variant = ends_with(name, kVariantSuffix);
    const bool text = is_text_file(name) || name == kAdapterConfig || name == kAdapterWeights;
    if (variant) content->variants.insert(name);
    if (text) content->texts.insert(name);
    content->adapter = content->adapter || name == kAdapterConfig;
    if (linked && (variant || text) && on_path_) on_path_(path);
  }

  static bool is_variant(const Content& content, const std::string& prefix) {
    if (content.variants.empty()) return content.adapter;
    if (!content.texts.empty()) return true;
    const size_t slash = prefix.rfind('/', prefix.size() - 2);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    const std::string own = prefix.substr(begin, prefix.size() - 1 - begin);
    return content.variants.size() == 1 && without_suffix(*content.variants.begin()) == own;
  }

  void add(const std::string& name, const std::string& path,
           const std::vector<std::string>& parts) {
    Mark mark;
    for (const std::string& part : parts)
      if (!mark.add(part)) return;  // it has just gone
    ListedVariant found{path, {}, {}};
    mark.fill(&found);
    const auto [at, fresh] = listing_.variants.emplace(name, std::move(found));
    if (!fresh) problem(path, fmt::format("{} has the same name", quoted_name(at->second.path)));
  }

  void problem(const std::string& path, const std::string& what) {
    listing_.problems.push_back(fmt::format("{} is left out: {}", quoted_name(path), what));
  }

  const std::function<void(const std::string&)>& on_path_;
  FolderListing listing_;
  std::set<std::pair<dev_t, ino_t>> above_;
};

}  // namespace

FolderListing list_folder(const std::string& root,
                          const std::function<void(const std::string& path)>& on_path) {
  Lister lister(on_path);
  lister.folder(root, "");
  return lister.take();
}

}  // namespace deltad
