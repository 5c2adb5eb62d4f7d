// needs: none. Ids of pictures' rows, and positions of tokens on three axes.
#include "model/infer/pictures/pictures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/infer/pictures/positions.h"

namespace lumen::model::infer {
namespace {

Picture picture(int64_t lines, int64_t columns, const std::string& content) {
  Picture out;
  out.hash = hash_text(content);
  out.lines = lines;
  out.columns = columns;
  out.rows.assign(lines * columns * 2, 1);
  return out;
}

TEST(PictureBook, EqualPicturesHaveEqualIds) {
  PictureBook book;
  const PictureRef a = book.add(picture(2, 3, "a")), b = book.add(picture(2, 3, "b")),
                   again = book.add(picture(2, 3, "a"));
  EXPECT_EQ(a, again);
  std::set<text::TokenId> ids(a->ids.begin(), a->ids.end());
  ids.insert(b->ids.begin(), b->ids.end());
  EXPECT_EQ(ids.size(), 12U);
  EXPECT_TRUE(std::ranges::all_of(ids, [](text::TokenId id) { return is_picture(id); }));
  const auto row = book.find(b->ids[4]);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->picture, b);
  EXPECT_EQ(row->number, 4);
  PictureBook other;
  EXPECT_EQ(other.add(picture(2, 3, "a"))->ids, a->ids);
}

TEST(PictureBook, ForgetsPicturesThatNobodyHolds) {
  PictureBook book;
  const text::TokenId id = book.add(picture(1, 1, "a"))->ids[0];
  EXPECT_FALSE(book.find(id));
  for (int i = 0; i < 5000; ++i) (void)book.add(picture(1, 4, std::to_string(i)));
  const PictureRef a = book.add(picture(1, 1, "a"));
  EXPECT_EQ(a->ids[0], id);
  EXPECT_TRUE(book.find(id));
}

TEST(PicturePositions, GoOnBehindTheLargerSide) {
  PictureBook book;
  const PictureRef a = book.add(picture(2, 3, "a"));
  std::vector<text::TokenId> tokens = {5, 6};
  tokens.insert(tokens.end(), a->ids.begin(), a->ids.end());
  tokens.insert(tokens.end(), a->ids.begin(), a->ids.end());
  tokens.push_back(7);
  using At = std::array<int32_t, 3>;
  PicturePositions whole, parts, plain;
  whole.extend(book, tokens, true);
  EXPECT_EQ(whole.at(1), (At{1, 1, 1}));
  EXPECT_EQ(whole.at(2), (At{2, 2, 2}));
  EXPECT_EQ(whole.at(7), (At{2, 3, 4}));
  EXPECT_EQ(whole.at(8), (At{5, 5, 5}));  // 2 + 3
  EXPECT_EQ(whole.at(13), (At{5, 6, 7}));
  EXPECT_EQ(whole.at(14), (At{8, 8, 8}));
  // In parts, and after some of them are gone.
  parts.extend(book, std::span(tokens).first(4), true);
  parts.extend(book, std::span(tokens).subspan(4, 7), true);
  parts.shorten(5);
  parts.extend(book, std::span(tokens).subspan(5), true);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(parts.at(i), whole.at(i)) << i;
  plain.extend(book, tokens, false);
  EXPECT_EQ(plain.at(14), (At{14, 14, 14}));
}

}  // namespace
}  // namespace lumen::model::infer
