// FileStamp: what of a file or a folder's files says, without reading them, whether they are the
// same as before. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct stat;

namespace deltad {

using FileStamp = std::vector<int64_t>;  // empty: nothing is known

// What of one entry changes whenever its content may have: device, inode, size, times.
void add_to_stamp(const struct stat& info, FileStamp* stamp);
// Of a file, or of a folder and all files in it (not of folders below). Links are followed, and
// their own entry counts too. Empty if a part of it cannot be looked at.
FileStamp stamp_of(const std::string& path);

}  // namespace deltad
