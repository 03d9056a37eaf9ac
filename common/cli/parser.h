// A program's options. The library CLI11 reads them, which parser.cpp alone includes: it takes the
// compiler longer than any kernel does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fa {

class Parser {
 public:
  class Option {
   public:
    explicit Option(void* option) : option_(option) {}

    // What a value must be. `shown`: --help says so, too.
    Option& range(int least, int most, bool shown = true);
    Option& one_of(const std::vector<std::string>& names, bool shown = true);
    // `wrong` says what is wrong with the text of a value: "" if nothing is.
    Option& check(const std::function<std::string(const std::string&)>& wrong);
    Option& values_with_commas();
    Option& show_default();  // in --help

   private:
    void* option_;
  };

  Parser(const std::string& about, const std::string& name = "");
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  // `value` is written to when the arguments are read, and must live until then: an int, uint64_t,
  // double or std::string, or a vector of ints, doubles or strings.
  template <typename T>
  Option add_option(const std::string& name, T& value, const std::string& help);
  void add_flag(const std::string& name, bool& value, const std::string& help);
  void footer(const std::string& text);  // below the options in --help

  // Reads the arguments. False: they ask for help, which is printed. Throws BadInput.
  bool parse(int argc, char** argv);
  bool has(const std::string& name) const;  // whether it was among the arguments

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fa
