#include "flow/launcher/pmix.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>

namespace amalgam::detail {
namespace {

// The part of PMIx's binary interface that we use, the same in versions 2 to 5. Neither its header
// nor its library is needed to build or run Amalgam.
struct pmix_process {
    std::array<char, 256> job;
    std::uint32_t rank;
};
struct pmix_value {
    std::uint16_t type;
    union {
        char* text;
        std::array<std::uint64_t, 8> room;  // At least as large as in any version.
    };
};
constexpr std::uint16_t pmix_text = 3;
constexpr std::uint8_t pmix_to_all = 3;
constexpr std::string_view key_stem = "amalgam.process.";

std::size_t number_in(const char* variable, std::size_t otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : otherwise;
}

}  // namespace

job_rank job_rank_from_environment() {
    if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr)
        return {number_in("OMPI_COMM_WORLD_RANK", 0), number_in("OMPI_COMM_WORLD_SIZE", 1),
                "mpirun"};
    // A batch script has a rank, too, but only processes started by srun have a step.
    if (std::getenv("SLURM_PROCID") != nullptr && std::getenv("SLURM_STEP_NUM_TASKS") != nullptr)
        return {number_in("SLURM_PROCID", 0), number_in("SLURM_STEP_NUM_TASKS", 1), "srun"};
    return {};
}

struct pmix_exchange::library {
    using status_code = int;

    library() : handle(::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL)) {
        if (handle == nullptr)
            throw error(
                errc::unsupported,
                fmt::format("the processes cannot exchange their addresses, because PMIx is not "
                            "installed ({}), expected Debian's package libpmix2, or fixed "
                            "addresses in the config; example: \"tcp://127.0.0.1:7000\"",
                            ::dlerror()));
        find(init, "PMIx_Init");
        find(finalize, "PMIx_Finalize");
        find(put, "PMIx_Put");
        find(commit, "PMIx_Commit");
        find(fence, "PMIx_Fence");
        find(get, "PMIx_Get");
        find(text_of, "PMIx_Error_string");
    }

    template <typename Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(::dlsym(handle, name));
        if (function == nullptr)
            throw error(errc::unsupported, fmt::format("libpmix.so.2 has no {}, expected PMIx 2 or "
                                                       "later; example: Debian's libpmix2",
                                                       name));
    }
    void check(status_code code, errc what, std::string_view doing) const {
        if (code != 0)
            throw error(status{what, code},
                        fmt::format("{} through PMIx failed ({})", doing, text_of(code)));
    }

    // Never closed: it has its own threads.
    void* handle;
    status_code (*init)(pmix_process*, void*, std::size_t);
    status_code (*finalize)(const void*, std::size_t);
    status_code (*put)(std::uint8_t, const char*, pmix_value*);
    status_code (*commit)();
    status_code (*fence)(const pmix_process*, std::size_t, const void*, std::size_t);
    status_code (*get)(const pmix_process*, const char*, const void*, std::size_t, pmix_value**);
    const char* (*text_of)(status_code);
    pmix_process self{};
    unsigned rounds = 0;  ///< A key cannot be published twice.
};

bool pmix_exchange::is_here() {
    return std::getenv("PMIX_RANK") != nullptr;
}

pmix_exchange::pmix_exchange() : pmix_(std::make_unique<library>()) {
    pmix_->check(pmix_->init(&pmix_->self, nullptr, 0), errc::unreachable,
                 "connecting to the launcher");
}

pmix_exchange::~pmix_exchange() {
    pmix_->finalize(nullptr, 0);
}

std::vector<std::string> pmix_exchange::all_say(const std::string& own, std::size_t size) {
    const std::string stem = std::string(key_stem) + std::to_string(++pmix_->rounds);
    const char* const key = stem.c_str();
    std::string text = own;
    pmix_value said{};
    said.type = pmix_text;
    said.text = text.data();
    constexpr std::string_view doing = "exchanging addresses";
    pmix_->check(pmix_->put(pmix_to_all, key, &said), errc::disconnected, doing);
    pmix_->check(pmix_->commit(), errc::disconnected, doing);
    pmix_->check(pmix_->fence(nullptr, 0, nullptr, 0), errc::disconnected, doing);
    std::vector<std::string> all;
    pmix_process other = pmix_->self;
    for (other.rank = 0; other.rank < size; ++other.rank) {
        pmix_value* heard = nullptr;
        pmix_->check(pmix_->get(&other, key, nullptr, 0, &heard), errc::disconnected, doing);
        const std::unique_ptr<pmix_value, void (*)(void*)> released(heard, &std::free);
        if (heard->type != pmix_text) pmix_->check(-1, errc::disconnected, doing);
        // PMIx makes an empty text null.
        all.emplace_back(heard->text == nullptr ? "" : heard->text);
        std::free(heard->text);
    }
    return all;
}

}  // namespace amalgam::detail
