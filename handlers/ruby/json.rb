# frozen_string_literal: true

module Sandbox
  # As much JSON as the protocol needs; the library is loaded only for variables.
  module Json
    ESCAPES = { 'n' => "\n", 't' => "\t", 'r' => "\r", 'b' => "\b", 'f' => "\f" }.freeze
    private_constant :ESCAPES

    module_function

    # The text of a JSON string, given without its quotes.
    def text(string)
      string.gsub(/\\(?:u(\h{4})|(.))/m) { $1 ? [$1.hex].pack('U') : ESCAPES.fetch($2, $2) }
    end

    # The variables of a request that ends with them.
    def variables(head)
      return {} if head.end_with?('"variables":{}')

      require 'json'
      ::JSON.parse("#{head}}", max_nesting: false).fetch('variables')
    end

    # The JSON string of any text; bytes that are not UTF-8 are shown as escapes.
    def quote(text)
      # Not from UTF-8 to UTF-8: that would replace the bytes that should be shown.
      text = text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace) unless text.encoding == Encoding::UTF_8
      clean = text.scrub { |bytes| bytes.unpack('C*').map { |byte| format('\\x%02X', byte) }.join }
      %("#{clean.gsub(/["\\\x00-\x1f]/) { |char| char < ' ' ? format('\\u%04x', char.ord) : "\\#{char}" }}")
    end

    def list(texts)
      "[#{texts.map { |text| quote(text) }.join(',')}]"
    end
  end
end
