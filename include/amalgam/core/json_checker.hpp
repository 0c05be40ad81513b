#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace amalgam {

/// Lists and objects in each other that a document may have. To write it as text takes stack for
/// each of them, and a ULT has not much.
inline constexpr int most_json_levels = 100;

/// Thrown by json_checker, which ends the parsing.
struct too_many_json_levels {};

/// The callback of nlohmann's parser, whose value is `Json`: refuses lists and objects in each
/// other without a limit, and notes a key twice in one object, of which the parser silently keeps
/// one.
///
///     json_checker<nlohmann::json> checker;
///     const auto document = nlohmann::json::parse(text, std::ref(checker));
///     if (checker.repeated_key()) ...
///
/// Threads: one at a time. Cost: memory for the keys of the objects that are open.
template <typename Json>
class json_checker {
public:
    explicit json_checker(int most_levels = most_json_levels) noexcept
        : most_levels_(most_levels) {}

    /// Called by the parser. Failure: throws too_many_json_levels.
    bool operator()(int level, typename Json::parse_event_t event, const Json& parsed) {
        using kind = typename Json::parse_event_t;
        const bool begins = event == kind::object_start || event == kind::array_start;
        if (begins && level >= most_levels_) throw too_many_json_levels();
        if (event == kind::object_start) {
            keys_.emplace_back();
        } else if (event == kind::object_end) {
            keys_.pop_back();
        } else if (event == kind::key && !repeated_) {
            auto key = parsed.template get<std::string>();
            if (!keys_.back().insert(key).second) repeated_ = std::move(key);
        }
        return true;
    }

    /// The first key that its object has twice.
    const std::optional<std::string>& repeated_key() const noexcept { return repeated_; }

private:
    int most_levels_;
    std::optional<std::string> repeated_;
    std::vector<std::set<std::string>> keys_;
};

}  // namespace amalgam
