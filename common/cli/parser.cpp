#include "common/cli/parser.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "common/api/fa.h"
#include "common/launch/problem.h"

namespace fa {
namespace {

CLI::Option& of_library(void* option) { return *static_cast<CLI::Option*>(option); }

// CLI11 takes 0200 for 128, 2^64 for 2^64 - 1 and -1 for that, too.
template <typename T>
std::string wrong_number(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [read_to, problem] = std::from_chars(text.data(), end, value);
  if (problem == std::errc::result_out_of_range) return "Value " + text + " is out of range";
  if (problem != std::errc() || read_to != end) return "Value " + text + " is no whole number";
  return std::to_string(value) == text ? "" : "Value " + text + " has a zero in front";
}

}  // namespace

struct Parser::State {
  CLI::App app;
};

Parser::Parser(const std::string& about, const std::string& name)
    : state_(new State{CLI::App(about, name)}) {
  state_->app.set_version_flag("--version", "fast-attention " FA_VERSION, "Print the version");
}
Parser::~Parser() = default;

Parser::Option& Parser::Option::range(int least, int most, bool shown) {
  CLI::Validator range = CLI::Range(least, most);
  of_library(option_).check(shown ? range : range.description(""));
  return *this;
}

Parser::Option& Parser::Option::one_of(const std::vector<std::string>& names, bool shown) {
  CLI::Validator member = CLI::IsMember(names);
  of_library(option_).check(shown ? member : member.description(""));
  return *this;
}

Parser::Option& Parser::Option::check(const std::function<std::string(const std::string&)>& wrong) {
  of_library(option_).check(
      CLI::Validator([wrong](const std::string& text) -> std::string { return wrong(text); }, ""));
  return *this;
}

Parser::Option& Parser::Option::values_with_commas() {
  of_library(option_).delimiter(',')->allow_extra_args(false);
  return *this;
}

Parser::Option& Parser::Option::show_default() {
  of_library(option_).capture_default_str();
  return *this;
}

template <typename T>
Parser::Option Parser::add_option(const std::string& name, T& value, const std::string& help) {
  Option option(state_->app.add_option(name, value, help));
  if constexpr (std::is_same_v<T, uint64_t>) option.check(wrong_number<uint64_t>);
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::vector<int>>) {
    option.check(wrong_number<int>);
  }
  return option;
}
template Parser::Option Parser::add_option(const std::string&, int&, const std::string&);
template Parser::Option Parser::add_option(const std::string&, uint64_t&, const std::string&);
template Parser::Option Parser::add_option(const std::string&, double&, const std::string&);
template Parser::Option Parser::add_option(const std::string&, std::string&, const std::string&);
template Parser::Option Parser::add_option(const std::string&, std::vector<int>&,
                                           const std::string&);
template Parser::Option Parser::add_option(const std::string&, std::vector<double>&,
                                           const std::string&);
template Parser::Option Parser::add_option(const std::string&, std::vector<std::string>&,
                                           const std::string&);

void Parser::add_flag(const std::string& name, bool& value, const std::string& help) {
  state_->app.add_flag(name, value, help);
}

void Parser::footer(const std::string& text) { state_->app.footer(text); }

bool Parser::parse(int argc, char** argv) {
  try {
    state_->app.parse(argc, argv);
  } catch (const CLI::Success& told) {  // --help or --version
    state_->app.exit(told);
    return false;
  } catch (const CLI::ParseError& error) {
    throw BadInput(std::string(error.what()) + " (see --help)");
  }
  return true;
}

bool Parser::has(const std::string& name) const { return state_->app.count(name) > 0; }

}  // namespace fa
