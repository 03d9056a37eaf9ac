// JSON values, with what programs of ours do with them. Text is read and written by the library
// nlohmann/json, which json.cpp alone includes: it takes the compiler longer than a kernel does.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace fa {

class Json {
 public:
  enum class Kind : uint8_t { kNull, kFlag, kWhole, kUnsigned, kNumber, kText, kList, kObject };

  Json() noexcept;
  Json(std::nullptr_t) noexcept : Json() {}
  Json(bool flag);
  Json(int value) : Json(static_cast<long long>(value)) {}
  Json(long value) : Json(static_cast<long long>(value)) {}
  Json(long long value);
  Json(unsigned value) : Json(static_cast<unsigned long long>(value)) {}
  Json(unsigned long value) : Json(static_cast<unsigned long long>(value)) {}
  Json(unsigned long long value);
  Json(float value);  // written with as few digits as tell floats apart
  Json(double value);
  Json(const char* text);
  Json(std::string_view text);
  Json(const std::string& text);
  template <typename Values>
  requires(!std::is_convertible_v<const Values&, std::string_view> &&
           !std::is_same_v<Values, Json> && requires(const Values& each) { std::size(each); })
      Json(const Values& values)
      : Json(array()) {
    for (const auto& value : values) push_back(value);
  }
  // {{"key", value}, ...} is an object, whose keys stay in this order; {value, ...} is a list.
  Json(std::initializer_list<Json> values);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  static Json array();
  static Json object();
  // Throws BadInput: "`what` is not JSON".
  static Json parse(const std::string& text, const std::string& what = "the text");
  // On one line. What is no UTF-8 is replaced; `ascii`: and all beyond ASCII escaped.
  std::string dump(bool ascii = false) const;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_flag() const { return kind_ == Kind::kFlag; }
  bool is_whole() const { return kind_ == Kind::kWhole || kind_ == Kind::kUnsigned; }
  bool is_number() const { return is_whole() || kind_ == Kind::kNumber; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // The value as a bool, int, int64_t, uint64_t, double or std::string. Throws std::logic_error if
  // it is of another kind; numbers are converted.
  template <typename T>
  T get() const;

  // For lists and objects.
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  Json& push_back(Json value);
  const Json& operator[](size_t i) const { return values_.at(i); }
  Json& operator[](size_t i) { return values_.at(i); }

  // For objects. Without const the operator adds what is not there; what has no such key is refused
  // by a std::out_of_range.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& at(std::string_view name) const;
  const Json& operator[](std::string_view name) const { return at(name); }
  Json& operator[](std::string_view name);
  Json value(std::string_view name, const Json& otherwise) const;
  void update(const Json& other);
  const std::string& key(size_t i) const { return keys_.at(i); }
  std::vector<std::pair<std::string, Json>> items() const;

  // Numbers are compared by value, whatever their kind; objects without regard to order.
  friend bool operator==(const Json& a, const Json& b);
  friend std::partial_ordering operator<=>(const Json& a, const Json& b);
  friend std::ostream& operator<<(std::ostream& stream, const Json& value);

 private:
  const Json* find(std::string_view name) const;

  Kind kind_ = Kind::kNull;
  union {
    bool flag_;
    int64_t whole_;
    uint64_t unsigned_;
    double number_;
  };
  std::string text_;
  std::vector<Json> values_;       // of a list, or of an object
  std::vector<std::string> keys_;  // of an object, a key for each of its values
};

template <>
bool Json::get() const;
template <>
int Json::get() const;
template <>
int64_t Json::get() const;
template <>
uint64_t Json::get() const;
template <>
double Json::get() const;
template <>
std::string Json::get() const;

}  // namespace fa
