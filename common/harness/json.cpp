#include "common/harness/json.h"

#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/launch/problem.h"

namespace fa {
namespace {

using Library = nlohmann::ordered_json;

Json from_library(const Library& value) {
  switch (value.type()) {
    case Library::value_t::boolean:
      return value.get<bool>();
    case Library::value_t::number_integer:
      return static_cast<long long>(value.get<int64_t>());
    case Library::value_t::number_unsigned:
      return static_cast<unsigned long long>(value.get<uint64_t>());
    case Library::value_t::number_float:
      return value.get<double>();
    case Library::value_t::string:
      return value.get_ref<const std::string&>();
    case Library::value_t::array: {
      Json list = Json::array();
      for (const Library& each : value) list.push_back(from_library(each));
      return list;
    }
    case Library::value_t::object: {
      Json object = Json::object();
      for (auto each = value.begin(); each != value.end(); ++each)
        object[each.key()] = from_library(each.value());
      return object;
    }
    default:
      return nullptr;
  }
}

Library to_library(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return nullptr;
    case Json::Kind::kFlag:
      return value.get<bool>();
    case Json::Kind::kWhole:
      return value.get<int64_t>();
    case Json::Kind::kUnsigned:
      return value.get<uint64_t>();
    case Json::Kind::kNumber:
      return value.get<double>();
    case Json::Kind::kText:
      return value.get<std::string>();
    case Json::Kind::kList: {
      Library list = Library::array();
      for (const Json& each : value) list.push_back(to_library(each));
      return list;
    }
    case Json::Kind::kObject:
      break;
  }
  Library object = Library::object();
  for (size_t i = 0; i < value.size(); i++) object.emplace(value.key(i), to_library(value[i]));
  return object;
}

[[noreturn]] void refuse(const Json& value, const char* wanted) {
  throw std::logic_error(value.dump() + " is not " + wanted);
}

}  // namespace

Json::Json() noexcept : whole_(0) {}
Json::Json(bool flag) : kind_(Kind::kFlag), flag_(flag) {}
Json::Json(long long value) : kind_(Kind::kWhole), whole_(value) {}
Json::Json(unsigned long long value) : kind_(Kind::kUnsigned), unsigned_(value) {}
Json::Json(double value) : kind_(Kind::kNumber), number_(value) {}
Json::Json(float value) : kind_(Kind::kNumber), number_(value) {
  char digits[32];
  const auto written = std::to_chars(digits, digits + sizeof digits, value);
  std::from_chars(digits, written.ptr, number_);
}
Json::Json(const char* text) : Json(std::string_view(text)) {}
Json::Json(std::string_view text) : kind_(Kind::kText), whole_(0), text_(text) {}
Json::Json(const std::string& text) : Json(std::string_view(text)) {}
Json::Json(std::initializer_list<Json> values) : kind_(Kind::kObject), whole_(0) {
  for (const Json& each : values) {
    if (!each.is_list() || each.size() != 2 || !each[0].is_text()) kind_ = Kind::kList;
  }
  for (const Json& each : values) {
    if (is_list()) {
      values_.push_back(each);
    } else {
      keys_.push_back(each.values_[0].text_);
      values_.push_back(each.values_[1]);
    }
  }
}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json Json::array() {
  Json list;
  list.kind_ = Kind::kList;
  return list;
}

Json Json::object() {
  Json object;
  object.kind_ = Kind::kObject;
  return object;
}

Json Json::parse(const std::string& text, const std::string& what) {
  const Library read = Library::parse(text, nullptr, /*allow_exceptions=*/false);
  if (read.is_discarded()) throw BadInput(what + " is not JSON");
  return from_library(read);
}

std::string Json::dump(bool ascii) const {
  return to_library(*this).dump(-1, ' ', ascii, Library::error_handler_t::replace);
}

template <>
bool Json::get() const {
  if (!is_flag()) refuse(*this, "true or false");
  return flag_;
}

template <>
int64_t Json::get() const {
  if (kind_ == Kind::kNumber) return int64_t(number_);
  if (!is_whole()) refuse(*this, "a number");
  return whole_;
}

template <>
uint64_t Json::get() const {
  return uint64_t(get<int64_t>());
}

template <>
int Json::get() const {
  return int(get<int64_t>());
}

template <>
double Json::get() const {
  if (!is_number()) refuse(*this, "a number");
  return kind_ == Kind::kNumber  ? number_
         : kind_ == Kind::kWhole ? double(whole_)
                                 : double(unsigned_);
}

template <>
std::string Json::get() const {
  if (!is_text()) refuse(*this, "a text");
  return text_;
}

Json& Json::push_back(Json value) {
  if (is_null()) kind_ = Kind::kList;
  if (!is_list()) refuse(*this, "a list");
  return values_.emplace_back(std::move(value));
}

const Json* Json::find(std::string_view name) const {
  for (size_t i = 0; i < keys_.size(); i++) {
    if (keys_[i] == name) return &values_[i];
  }
  return nullptr;
}

const Json& Json::at(std::string_view name) const {
  if (const Json* const found = find(name)) return *found;
  throw std::out_of_range(dump() + " has no '" + std::string(name) + "'");
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) kind_ = Kind::kObject;
  if (!is_object()) refuse(*this, "an object");
  if (const Json* const found = find(name)) return const_cast<Json&>(*found);
  keys_.emplace_back(name);
  return values_.emplace_back();
}

Json Json::value(std::string_view name, const Json& otherwise) const {
  const Json* const found = find(name);
  return found ? *found : otherwise;
}

void Json::update(const Json& other) {
  for (size_t i = 0; i < other.keys_.size(); i++) (*this)[other.keys_[i]] = other.values_[i];
}

std::vector<std::pair<std::string, Json>> Json::items() const {
  std::vector<std::pair<std::string, Json>> result;
  for (size_t i = 0; i < keys_.size(); i++) result.emplace_back(keys_[i], values_[i]);
  return result;
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (!a.is_whole() || !b.is_whole()) return a.get<double>() == b.get<double>();
    return a.whole_ == b.whole_ && (a.kind_ == b.kind_ || a.whole_ >= 0);
  }
  if (a.kind_ != b.kind_ || a.size() != b.size()) return false;
  if (a.is_flag()) return a.flag_ == b.flag_;
  if (!a.is_object()) return a.text_ == b.text_ && a.values_ == b.values_;
  for (size_t i = 0; i < a.size(); i++) {
    const Json* const other = b.find(a.keys_[i]);
    if (!other || !(*other == a.values_[i])) return false;
  }
  return true;
}

std::partial_ordering operator<=>(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() <=> b.get<double>();
  if (a.is_text() && b.is_text()) return a.text_ <=> b.text_;
  return std::partial_ordering::unordered;
}

std::ostream& operator<<(std::ostream& stream, const Json& value) { return stream << value.dump(); }

}  // namespace fa
