// Requests of HTTP: a line, header fields, and a body whose length is told or which comes in pieces.
#pragma once

#include "tests/fuzz/mutators/words.h"

namespace mutators {

inline void change_http(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {"GET ",
                                                "POST ",
                                                "OPTIONS ",
                                                "/v1/chat/completions",
                                                "/health",
                                                "*",
                                                "http://a/b",
                                                " HTTP/1.1\r\n",
                                                " HTTP/1.0\r\n",
                                                " HTTP/2\r\n",
                                                "\r\n",
                                                "\n",
                                                "\r",
                                                "\r\n\r\n",
                                                "\r\n ",
                                                ": ",
                                                ":",
                                                " :",
                                                "\t",
                                                "Host: a\r\n",
                                                "Content-Length: 5\r\n",
                                                "Content-Length: 0\r\n",
                                                "Content-Length: +5\r\n",
                                                "Content-Length: 5, 5\r\n",
                                                "Content-Length: 18446744073709551616\r\n",
                                                "Transfer-Encoding: chunked\r\n",
                                                "Transfer-Encoding: gzip, chunked\r\n",
                                                "Transfer-Encoding: xchunked\r\n",
                                                "Connection: close\r\n",
                                                "Connection: keep-alive\r\n",
                                                "Expect: 100-continue\r\n",
                                                "Authorization: Bearer x\r\n",
                                                "5\r\nhello\r\n",
                                                "0\r\n\r\n",
                                                "0\r\nX: y\r\n\r\n",
                                                "a;b=c\r\n0123456789\r\n",
                                                "ffffffffffffffff\r\n",
                                                "{\"a\":1}",
                                                std::string_view("\0", 1),
                                                "\x7f",
                                                "\xff",
                                                ";",
                                                "="};
  if (chance() % 4 != 0) return change_words(text, chance, kWords);
  // Header fields change places, are doubled or lose their lines' ends.
  const size_t head = text.find("\r\n\r\n");
  if (head == std::string::npos) return change_words(text, chance, kWords);
  std::vector<std::string> lines;
  for (size_t at = 0; at <= head;) {
    const size_t end = std::min(text.find("\r\n", at), head);
    lines.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  const std::string body = text.substr(head + 4);
  const size_t one = below(chance, lines.size()), other = below(chance, lines.size());
  switch (chance() % 4) {
    case 0:
      std::swap(lines[one], lines[other]);
      break;
    case 1:
      lines.insert(lines.begin() + one, std::string(lines[other]));
      break;
    case 2:
      lines.erase(lines.begin() + one);
      break;
    default:
      for (char& c : lines[one])
        if (chance() % 2 == 0) c = static_cast<char>(std::islower(static_cast<unsigned char>(c)) ? c - 32 : c);
  }
  text.clear();
  for (const std::string& line : lines) text += line + "\r\n";
  text += "\r\n" + body;
}

}  // namespace mutators
