#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <amalgam/core/status.hpp>

#include "call/json_values.hpp"
#include "fuzz/fuzz.hpp"

namespace amalgam::fuzz {

/// A signature, a zero byte, and an answer, as a hostile peer of `amalgam call` chooses them.
void run_one(const_bytes input) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const std::size_t end = std::min(text.find('\0'), text.size());
    tool::call_signature signature;
    try {
        signature = tool::parse_signature(text.substr(0, end));
    } catch (const error& why) {
        require(why.code() == errc::invalid || why.code() == errc::unsupported,
                "a refused signature is invalid or unsupported");
        require(std::string_view(why.what()).size() < 1000, "a refusal is one sentence");
        return;
    }
    const const_bytes answer = input.subspan(std::min(end + 1, input.size()));
    for (const encoding as : {encoding::native, encoding::xdr}) {
        try {
            const tool::json value =
                tool::decode(signature.result, {{answer.begin(), answer.end()}, as});
            require(!tool::to_text(value).empty(), "an answer can be printed");
            if (as == encoding::xdr || signature.result.name == "void") continue;
            signature.arguments = {signature.result};
            const raw_values again = tool::encode(signature, tool::json::array({value}));
            require(tool::decode(signature.result, again) == value, "a value is the same again");
        } catch (const error& why) {
            require(why.code() == errc::mismatch || why.code() == errc::invalid,
                    "a refused answer is a mismatch");
        }
    }
}

std::span<const std::string_view> seeds() {
    using namespace std::string_view_literals;
    static constexpr std::array<std::string_view, 10> all{
        "i32(i32,string)\0\1\2\3\4"sv,
        "string()\0\3\0\0\0abc"sv,
        "vector<f64>(bool)\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40"sv,
        "map<string,vector<u8>>()\0\1\0\0\0\1\0\0\0k\2\0\0\0\1\2"sv,
        "tuple<i8,optional<u64>,bool>()\0\5\1\1\2\3\4\5\6\7\10\1"sv,
        "variant<none,app::color:u8>()\0\1\7"sv,
        "vector<array<array<none,1000>,1000>>()\0\377\0\0\0"sv,
        "map<i32,i32>()\0\1\0\0\0\1\0\0\0\2\0\0\0"sv,
        "duration<i64,1/1000>()\0\1\2\3\4\5\6\7\10"sv,
        "void()\0"sv,
    };
    return all;
}

}  // namespace amalgam::fuzz
