#pragma once

#include <string_view>
#include <utility>

#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/engine_streams.hpp>

/// Names of enumerators in a config.
namespace amalgam::detail {

inline constexpr std::pair<std::string_view, pool_kind> pool_words[] = {
    {"shared_fifo", pool_kind::shared_fifo},
    {"fifo", pool_kind::fifo},
    {"lifo", pool_kind::lifo},
    {"priority", pool_kind::priority},
    {"work_stealing", pool_kind::work_stealing}};

inline constexpr std::pair<std::string_view, scheduler_kind> scheduler_words[] = {
    {"in_turn", scheduler_kind::in_turn},
    {"priority", scheduler_kind::priority},
    {"work_stealing", scheduler_kind::work_stealing}};

inline constexpr std::pair<std::string_view, progress_by> progress_words[] = {
    {"shared", progress_by::shared},
    {"own_stream", progress_by::own_stream},
    {"caller", progress_by::caller}};

inline constexpr std::pair<std::string_view, encoding> encoding_words[] = {
    {"native", encoding::native}, {"xdr", encoding::xdr}};

}  // namespace amalgam::detail
