# find_package(coreline) defines coreline::coreline, the shared library, and coreline::static.
#
# The folder of this file is share/cmake/coreline below the prefix.
get_filename_component(_coreline_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_coreline_kind shared static)
    set(_coreline_name libcoreline.so)
    if(_coreline_kind STREQUAL "static")
        set(_coreline_name libcoreline.a)
    endif()
    unset(_coreline_file CACHE)
    find_file(_coreline_file ${_coreline_name}
        PATHS ${_coreline_prefix}
        PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE}
        NO_DEFAULT_PATH)
    if(_coreline_file)
        set(_coreline_target coreline::static)
        if(_coreline_kind STREQUAL "shared")
            set(_coreline_target coreline::coreline)
        endif()
        if(NOT TARGET ${_coreline_target})
            string(TOUPPER ${_coreline_kind} _coreline_kind)
            add_library(${_coreline_target} ${_coreline_kind} IMPORTED)
            set_target_properties(${_coreline_target} PROPERTIES
                IMPORTED_LOCATION ${_coreline_file}
                INTERFACE_INCLUDE_DIRECTORIES ${_coreline_prefix}/include)
        endif()
    endif()
    unset(_coreline_file CACHE)
endforeach()
if(TARGET coreline::static)
    # What Rust's standard library needs. The compiler adds its own library, and that of C.
    set_target_properties(coreline::static PROPERTIES
        INTERFACE_LINK_LIBRARIES "util;rt;pthread;m;dl")
endif()
if(NOT TARGET coreline::coreline AND NOT TARGET coreline::static)
    set(coreline_FOUND FALSE)
    set(coreline_NOT_FOUND_MESSAGE "no libcoreline.so and no libcoreline.a below ${_coreline_prefix}")
endif()
