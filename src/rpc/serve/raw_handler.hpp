#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/rpc/detail/handler.hpp>
#include <amalgam/rpc/raw_call.hpp>

namespace amalgam::detail {

class engine_core;

/// A handler that gets its arguments undecoded.
class raw_handler final : public handler_base {
public:
    explicit raw_handler(std::function<raw_values(const raw_call&)> function)
        : function_(std::move(function)) {}
    bool invoke(archive_reader& arguments, archive_writer& result, const answer_way& how) override;

private:
    std::function<raw_values(const raw_call&)> function_;
};

/// One handler of several procedures.
class shared_handler final : public handler_base {
public:
    explicit shared_handler(std::shared_ptr<handler_base> same) : same_(std::move(same)) {}
    bool invoke(archive_reader& arguments, archive_writer& result, const answer_way& how) override {
        return same_->invoke(arguments, result, how);
    }

private:
    std::shared_ptr<handler_base> same_;
};

/// Throws error{invalid} for a text that is no signature, error{unsupported} for one that reads a
/// stream.
void check_raw_signature(std::string_view name, std::string_view signature);
/// How a handler without types answers.
answer_form raw_form(std::string_view signature) noexcept;

/// See engine::call_raw().
raw_values call_raw(engine_core& core, const peer& there, std::string_view name,
                    std::string signature, const raw_values& arguments,
                    const raw_call_options& how);

}  // namespace amalgam::detail
