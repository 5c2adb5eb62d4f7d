// Lists and removes folders. The standard library's directory iterators and their users terminate the program when
// memory for a name runs out (libstdc++ 12: directory_iterator advances in a noexcept function); these functions do
// not. Proved by tests/base/folder_test.cpp.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace lumen {

// The paths of a folder's entries, sorted by bytes. "" is not a folder. Error when the folder cannot be read; with
// `failure`, returns the entries read so far and stores the reason.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder, std::error_code& failure);

inline constexpr int kAnyDepth = 4096;
// The same for the folder and all folders in it, `deepest` levels down (0: as list_folder). A folder precedes its
// contents. Links are listed and not followed. Error when a folder cannot be read; with `failure`, unreadable folders
// are skipped.
std::vector<std::filesystem::path> list_below(const std::filesystem::path& folder);
std::vector<std::filesystem::path> list_below(const std::filesystem::path& folder, std::error_code& failure,
                                              int deepest = kAnyDepth);

// Removes a file, a link, or a folder and its contents, as far as possible; a missing path is not a failure. `failure`:
// the first reason why something remains, otherwise cleared.
void remove_tree(const std::filesystem::path& path, std::error_code& failure) noexcept;
// Error when something remains.
void remove_tree(const std::filesystem::path& path);

}  // namespace lumen
