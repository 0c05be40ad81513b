#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <ff/mapping_utils.hpp>
#include <ff/svector.hpp>

/// Which processor each thread would be pinned to. Amalgam pins nothing by itself: the list is
/// kept and answered from, so that programs that set it or ask run as before.
class threadMapper {
public:
    static threadMapper* instance();

    /// Processors in the order in which threads would get them, such as "0,2,1,3".
    void setMappingList(const char* processors);
    void setMappingList(const std::vector<size_t>& processors);
    ssize_t getCoreId(unsigned thread) const { return list_[thread % list_.size()]; }
    ssize_t getCoreId() { return list_[next_++ % list_.size()]; }
    ssize_t* getMappingList() { return list_.data(); }
    unsigned getCListSize() const { return static_cast<unsigned>(list_.size()); }
    unsigned getNumCores() const { return static_cast<unsigned>(list_.size()); }
    bool checkCPUId(int cpu) const;

private:
    threadMapper();
    std::vector<ssize_t> list_;
    std::size_t next_ = 0;
};

namespace ff {
using ::threadMapper;
}
