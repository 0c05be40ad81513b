#pragma once

#include <concepts>
#include <string_view>

namespace amalgam {

/// Names starting with "amalgam." are procedures of the library: any engine may call them, only the
/// library defines them. docs/guide/rpc.md lists them.
constexpr bool is_library_procedure(std::string_view name) noexcept {
    return name.starts_with("amalgam.");
}

namespace detail {

/// A name passed to engine::define() and undefine() by the library's own layers.
struct library_name {
    std::string_view text;
};

/// Argument of engine::define() and undefine(): any text, or a library_name.
class procedure_name {
public:
    template <typename Text>
    requires(std::convertible_to<const Text&, std::string_view>) procedure_name(const Text& text)
    noexcept(noexcept(std::string_view(text))) : text_(text) {}
    procedure_name(library_name name) noexcept : text_(name.text), by_library_(true) {}

    std::string_view text() const noexcept { return text_; }
    bool by_library() const noexcept { return by_library_; }

private:
    std::string_view text_;
    bool by_library_ = false;
};

}  // namespace detail

}  // namespace amalgam
