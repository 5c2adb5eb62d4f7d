// Pages of a KV cache that many sequences share: several sequences may hold a page, and it is free again when the last
// of them lets it go. The lowest free page is taken first, so that memory nobody used stays untouched. A page table
// lists the pages of one sequence. Proved by tests/model/infer/page_pool_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <vector>

namespace lumen::model {

class PagePool {
 public:
  PagePool(int64_t pages, int64_t page_size);
  int64_t pages() const { return holders_.size(); }
  int64_t page_size() const { return page_size_; }  // positions of a page
  int64_t free() const { return empty_.size(); }
  bool is_shared(int32_t page) const { return holders_[page] > 1; }

  int32_t take();           // a free page, for one sequence; there must be one
  void hold(int32_t page);  // one more sequence holds it
  void drop(int32_t page);  // one sequence fewer holds it

 private:
  int64_t page_size_;
  std::vector<int32_t> holders_;  // by page
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> empty_;
};

// The pages of one sequence, in its order. With a window, those that no later token sees are let go.
class PageTable {
 public:
  static constexpr int32_t kGone = -1;

  explicit PageTable(int64_t window = 0) : window_(window) {}
  std::span<const int32_t> pages() const { return pages_; }  // kGone where let go

  // Pages that room for tokens at `length` .. `upto` - 1 would take.
  int64_t missing(const PagePool& pool, int64_t length, int64_t upto) const;
  // Makes that room; a page that others hold, too, is replaced by one of its own, to which `copy` copies it.
  void make_room(PagePool& pool, int64_t length, int64_t upto,
                 const std::function<void(int32_t from, int32_t to)>& copy);
  // Lets go of what no token at `length` or behind it sees.
  void forget(PagePool& pool, int64_t length);
  // Lets go of what lies behind `length` tokens.
  void shorten(PagePool& pool, int64_t length);
  // How much of the first `length` tokens may be gone back to: `length`, or 0 when something is gone that the next
  // token would see.
  int64_t kept(const PagePool& pool, int64_t length) const;
  // Takes over the first pages of another table: those of `length` tokens.
  void share(PagePool& pool, const PageTable& from, int64_t length);

 private:
  int64_t window_;
  std::vector<int32_t> pages_;
};

}  // namespace lumen::model
